//go:build linux && amd64

package tidy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// program32 tries each way to join an arena, and prints the errors.
const program32 = `package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
)

func main() {
	for _, join := range []func(string, *arena.Options) (*arena.Arena, error){arena.Open, arena.Create, arena.Attach} {
		_, err := join(os.Args[1], nil)
		fmt.Println(errors.Is(err, shmsync.ErrNotSupported), err)
	}
}
`

// TestProgramOf32BitsIsRefused builds a program for 386 and runs it, in an emulator if the kernel does not run such
// programs. Each call that should join an arena returns an error that names the reason, and leaves no file.
func TestProgramOf32BitsIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it compiles the library for 386")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	dir := t.TempDir()
	source, program, file := filepath.Join(dir, "main.go"), filepath.Join(dir, "program"), filepath.Join(dir, "arena")
	require.NoError(t, os.WriteFile(source, []byte(program32), 0o666))
	build := exec.Command("go", "build", "-gcflags=all=-N -l", "-o", program, source)
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=386", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(program, file).CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) { // this kernel runs no programs for 386; it needs CONFIG_IA32_EMULATION
		emulated := exec.Command(proctest.Program(t, "qemu-i386-static"), program, file)
		emulated.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off") // the emulator fails on the runtime's signals
		out, err = emulated.CombinedOutput()
	}
	require.NoError(t, err, "%s", out)
	said := func(op string) string {
		return "true shmsync: arena." + op + ` "` + file + `": not supported: arenas need a 64-bit little-endian program; ` +
			"this one is linux/386, with words of 32 bits\n"
	}
	require.Equal(t, said("open")+said("create")+said("attach"), string(out))
	require.NoFileExists(t, file)
}
