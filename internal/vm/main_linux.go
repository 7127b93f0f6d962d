package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The first process of the machine starts a second process, and passes it one of these arguments. With runPlan, the
// second process prints facts about the machine and runs the plan. With tellFacts, it only prints the facts. The
// first process passes tellFacts if the kernel's command line has SHMSYNC_VM=facts.
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
		// This machine is not a virtual machine of the tests. So do not mount file systems here, and do not switch it
		// off.
		fmt.Fprintln(os.Stderr, "vm: is the first process of a virtual machine, see .ci/kernels")
		os.Exit(2)
	}
}

// first is the main function of the first process of the virtual machine. When another process dies, its children
// become children of this process. This process waits for them, because they would stay zombies otherwise.
func first() {
	fmt.Println() // the firmware may leave the cursor within a line
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

// collect waits for processes that end, until the process with the ID pid has ended. It reports whether that process
// ended with status 0.
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

// mounts lists the file systems that tests need. As on a disk, the pages of the files in /ram belong to the page
// cache, so the files do not follow a memory policy.
var mounts = []struct{ kind, at string }{
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"devtmpfs", "/dev"},
	{"tmpfs", "/dev/shm"},
	{"tmpfs", "/tmp"},
	{"ramfs", "/ram"},
}

// tidied lists the directories in which programs may leave files.
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
	// Shell scripts expect this link, and devtmpfs does not make it.
	return os.Symlink("/proc/self/fd", "/dev/fd")
}

// run runs the plan, and reports whether all programs ended well.
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

// tidyUp removes the files that a program has left in the directories dirs, and prints their names. These
// directories are in memory, so the files would take memory from the next program.
func tidyUp(out *os.File, dirs ...string) {
	for _, dir := range dirs {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			panic(err) // the pattern is valid, so this cannot happen
		}
		for _, name := range left {
			fmt.Fprintln(out, "left behind:", name)
			if err := os.RemoveAll(name); err != nil {
				fmt.Fprintln(out, "vm:", err)
			}
		}
	}
}

// powerOff switches the machine off after the serial line has sent everything.
func powerOff() {
	if err := unix.IoctlSetInt(1, unix.TCSBRK, 1); err != nil {
		time.Sleep(time.Second)
	}
	fmt.Println("vm: power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	select {} // the first process must not end
}
