package main

// synchronizedMutants are mistakes in Synchronized.
var synchronizedMutants = []mutant{
	{
		name: "Load of a Synchronized does not read again after an Update that has committed meanwhile",
		file: "prims/synchronized.go",
		old:  "return s.words.current.Load() == c",
		new:  "return s.words.current.Load() >= c",
		pkg:  "prims", run: "TestSynchronizedLoadsAreWhole",
	},
	{
		name: "Update of a Synchronized writes the valid copy",
		file: "prims/synchronized.go",
		old:  "v := s.copies[(c+1)&1]",
		new:  "v := s.copies[c&1]",
		pkg:  "prims", run: "TestSynchronizedUpdateIsAllOrNothing",
	},
	{
		name: "Update of a Synchronized commits a copy before it has changed it",
		file: "prims/synchronized.go",
		old:  "v := s.copies[(c+1)&1]\n\t*v = *s.copies[c&1]",
		new:  "v := s.copies[(c+1)&1]\n\t*v = *s.copies[c&1]\n\tcommitStore(&s.words.current, c+1)",
		pkg:  "internal/stepkill", run: "TestStepImages/synchronized/update$",
	},
	{
		name: "Close of a Synchronized does not wait for an Update",
		file: "prims/synchronized_close.go",
		old:  "s.heldSince = 0\n\t\treturn false",
		new:  "s.heldSince = 0\n\t\treturn true",
		pkg:  "prims", run: "TestSynchronizedClose$",
	},
}
