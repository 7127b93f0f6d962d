package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The first process starts another one, and these arguments say what that one does: run the plan,
// or, if the kernel's command line has SHMSYNC_VM=facts, only print what machine this is.
const (
	runPlan   = "run"
	tellFacts = "facts"
)

func main() {
	switch {
	case filepath.Base(os.Args[0]) == "sleep":
		time.Sleep(time.Hour)
	case os.Getpid() == 1:
		first()
	case os.Getppid() == 1 && len(os.Args) == 2:
		facts(os.Stdout, "/sys", "/proc")
		if os.Args[1] != tellFacts && !run() {
			os.Exit(1)
		}
	default:
		// Not a place to mount file systems in, let alone to switch off.
		fmt.Fprintln(os.Stderr, "vm: is the first process of a virtual machine, see .ci/kernels")
		os.Exit(2)
	}
}

// first is the first process: it inherits what others leave behind when they
// die, and must collect it, or every process would stay as a zombie.
func first() {
	fmt.Println() // the firmware leaves the cursor anywhere
	ok, what := false, runPlan
	if os.Getenv("SHMSYNC_VM") == tellFacts {
		what = tellFacts
	}
	if err := mountAll(); err != nil {
		fmt.Println("vm:", err)
	} else if p, err := os.StartProcess("/proc/self/exe", []string{"vm", what}, &os.ProcAttr{
		Env:   []string{"PATH=/bin", "HOME=/", "TMPDIR=/tmp"},
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	}); err != nil {
		fmt.Println("vm:", err)
	} else {
		ok = collect(p.Pid)
	}
	fmt.Println("RESULT all", verdict(ok))
	powerOff()
}

// collect waits for all processes until pid is one of them, and reports whether
// that ended well.
func collect(pid int) bool {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fmt.Println("vm: wait:", err)
			return false
		case got == pid:
			return status.Exited() && status.ExitStatus() == 0
		}
	}
}

// mounts are the file systems that tests look for. Files in /ram are in the page
// cache, as on a disk: they heed no placement.
var mounts = []struct{ kind, at string }{
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"devtmpfs", "/dev"},
	{"tmpfs", "/dev/shm"},
	{"tmpfs", "/tmp"},
	{"ramfs", "/ram"},
}

// tidied are where programs may leave something behind.
var tidied = []string{"/dev/shm", "/tmp", "/ram"}

func mountAll() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, dir := range tidied {
		if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
			return err
		}
	}
	// A link that a shell script would expect: devtmpfs makes none.
	return os.Symlink("/proc/self/fd", "/dev/fd")
}

// run runs the plan, and reports whether all went well.
func run() bool {
	text, err := os.ReadFile("/plan")
	if err != nil {
		fmt.Println("vm:", err)
		return false
	}
	programs, err := parsePlan(string(text))
	if err != nil {
		fmt.Println("vm:", err)
		return false
	}
	ok := true
	for _, p := range programs {
		ok = p.run(os.Stdout) && ok
		tidyUp(os.Stdout, tidied...)
	}
	return ok
}

// tidyUp removes what a program has left in memory, so that the next one has
// room, and says what it was.
func tidyUp(out *os.File, dirs ...string) {
	for _, dir := range dirs {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			panic(err) // the pattern is good
		}
		for _, name := range left {
			fmt.Fprintln(out, "left behind:", name)
			if err := os.RemoveAll(name); err != nil {
				fmt.Fprintln(out, "vm:", err)
			}
		}
	}
}

// powerOff switches the machine off, after the serial line has taken all.
func powerOff() {
	if err := unix.IoctlSetInt(1, unix.TCSBRK, 1); err != nil {
		time.Sleep(time.Second)
	}
	fmt.Println("vm: power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	select {} // the first process must not end
}
