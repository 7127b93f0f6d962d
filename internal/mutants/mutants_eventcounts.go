package main

// eventcountMutants are mistakes in objects whose waiters sleep on an eventcount.
var eventcountMutants = []mutant{
	{
		name: "the producer's death is not reported",
		file: "prims/future.go",
		old:  "\t\t\tif n == 0 || !dead(n) {\n",
		new:  "\t\t\tif n == 0 || !dead(0) {\n",
		pkg:  "prims", run: "TestFutureProducerDies",
	},
	{
		name: "a process that ends a round of a Future wakes nobody",
		file: "prims/future.go",
		old:  "\t\t\treturn to, s.announced()\n",
		new:  "\t\t\treturn to, false\n",
		pkg:  "prims", run: "TestFutureWait$", tags: withPoints, env: noLooks,
	},
	{
		name: "a round of a Future is decided and does not end",
		file: "prims/future.go",
		old:  "\t\tif !r.of(s.round()) {\n\t\t\tn := s.producer()\n",
		new:  "\t\tif n := s.producer(); n == 0 || !r.of(s.round()) {\n",
		pkg:  "prims", run: "TestFutureCrashOfTheSetter", tags: withPoints,
	},
}
