package main

// synchronizedMutants are mistakes in Synchronized.
var synchronizedMutants = []mutant{
	{
		name: "a Load that met a commit reads again",
		file: "prims/synchronized.go",
		old:  "return s.words.current.Load() == c",
		new:  "return s.words.current.Load() >= c",
		pkg:  "prims", run: "TestSynchronizedLoadsAreWhole",
	},
	{
		name: "an Update writes the copy that is not valid",
		file: "prims/synchronized.go",
		old:  "v := s.copies[(c+1)&1]",
		new:  "v := s.copies[c&1]",
		pkg:  "prims", run: "TestSynchronizedUpdateIsAllOrNothing",
	},
	{
		name: "the commit comes after the change",
		file: "prims/synchronized.go",
		old:  "v := s.copies[(c+1)&1]\n\t*v = *s.copies[c&1]",
		new:  "v := s.copies[(c+1)&1]\n\t*v = *s.copies[c&1]\n\tcommitStore(&s.words.current, c+1)",
		pkg:  "internal/stepkill", run: "TestStepImages/synchronized/update$",
	},
	{
		name: "Close waits for an Update",
		file: "prims/synchronized_close.go",
		old:  "s.heldSince = 0\n\t\treturn false",
		new:  "s.heldSince = 0\n\t\treturn true",
		pkg:  "prims", run: "TestSynchronizedClose$",
	},
}
