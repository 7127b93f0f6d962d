package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// The exit statuses of the command.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		return usage()
	}
	switch command, args := args[0], args[1:]; command {
	case "header":
		fmt.Println(strings.Join(columns, "\t"))
		return exitOK
	case "check":
		return checkCommand(args)
	case "seccomp":
		if len(args) < 3 {
			return usage()
		}
		return failed(underFilter(args[0], args[1], args[2:]))
	case "features":
		tellFeatures(os.Stdout)
		return exitOK
	case "library":
		return failed(useLibrary())
	case "huge":
		return failed(useHugePages())
	}
	return usage()
}

func checkCommand(args []string) int {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	c := checker{}
	flags.BoolVar(&c.brief, "brief", false, "use few deaths and few proofs")
	flags.Func("cause", "expect failures for this reason", func(text string) error {
		c.causes = append(c.causes, text)
		return nil
	})
	flags.DurationVar(&c.limit, "limit", 3*time.Minute, "end each check after this time")
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		return usage()
	}
	c.prefix = flags.Args()[1:]
	if err := c.find(); err != nil {
		return failed(err)
	}
	row, ok := c.row(flags.Arg(0))
	fmt.Println(row)
	if !ok {
		return exitFailed
	}
	return exitOK
}

// failed prints an error, if there is one, and returns the exit status.
func failed(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "environ:", err)
	return exitFailed
}

func usage() int {
	fmt.Fprintln(os.Stderr, "usage: environ header | check [-brief] [-cause TEXT]... [-limit 3m] NAME [COMMAND...] | seccomp ANSWER FILE COMMAND...")
	return exitUsage
}
