package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `usage: shmgen -type T[,T...] [-o FILE] [PACKAGE]

Write a C header for Go struct types whose values live in shared memory.
PACKAGE is a directory or an import path; without it, the current directory.

  //go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type Ledger -o ledger_shm.h
  shmgen -type Job,Result -o c/jobs_shm.h ./internal/jobs

`

func main() { os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr)) }

// realMain does the work of the function main. The arguments and the output streams are parameters, so that tests can
// replace them.
func realMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("shmgen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	names := flags.String("type", "", "`names` of struct types, separated by commas")
	out := flags.String("o", "", "`file` to write; without it the header goes to the standard output")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 1
	}
	if *names == "" || flags.NArg() > 1 {
		flags.Usage()
		return 1
	}
	pattern := "."
	if flags.NArg() == 1 {
		pattern = flags.Arg(0)
	}
	if err := generate(pattern, strings.Split(*names, ","), *out, stdout); err != nil {
		fmt.Fprintln(stderr, "shmgen:", err)
		return 1
	}
	return 0
}

// generate writes the header for the named types to the file out, or to stdout if out is empty. It leaves the file
// alone if there is an error or if the contents are the same. A new modification time would make make(1) rebuild
// the files that include the header.
func generate(pattern string, names []string, out string, stdout io.Writer) error {
	pkg, err := load(pattern)
	if err != nil {
		return err
	}
	h, err := describe(pkg, names)
	if err != nil {
		return err
	}
	text := h.text(guardOf(out, names))
	if out == "" {
		_, err = io.WriteString(stdout, text)
		return err
	}
	if old, err := os.ReadFile(out); err == nil && string(old) == text {
		return nil
	}
	return os.WriteFile(out, []byte(text), 0o644)
}
