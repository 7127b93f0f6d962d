//go:build linux

package peers

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
)

//go:embed peer.c peer.h peer_cells.h peer_ipc.h peer_load.h
var peerSource embed.FS

// CPeers are the primitives that a C program can use on this host. A C program, the helper, measures them. Its source
// is embedded in the Go program.
var CPeers = []*bench.Subject{
	cPeer("futex", "uncontended", "handoff", "wake", "lock", "event"),
	cPeer("futex-spin1000", "uncontended", "handoff", "wake", "lock"),
	cPeer("pthread", "uncontended", "lock", "multi"),
	glibcPeer("adaptive", "uncontended", "lock"),
	{By: "c", Prim: "robust", C: true, Brief: []string{"uncontended", "lock", "crash", "rw", "multi", "intruder"},
		Scenarios: []string{"uncontended", "lock", "crash", "rw", "multi", "home", "intruder"}},
	cPeer("cond", "handoff", "wake", "cond", "event", "queue"),
	cPeer("sem", "uncontended", "handoff", "wake", "lock", "sem"),
	cPeer("rwlock", "uncontended", "readers", "rw"),
	glibcPeer("rwlock-writers", "rw"),
	cPeer("rwlock-read", "uncontended"),
	cPeer("barrier", "barrier"),
	{By: "c", Prim: "pi", C: true, Scenarios: []string{"uncontended", "lock"}, Brief: []string{}, Check: checkPI},
	{By: "c", Prim: "robust-pi", C: true, Scenarios: []string{"uncontended", "lock", "crash"}, Brief: []string{}, Check: checkPI},
	{By: "c", Prim: "sysv", C: true, Scenarios: []string{"uncontended", "handoff", "wake", "lock", "sem", "crash"},
		Brief: []string{}, Check: checkSysV, Clean: removeSysV},
	{By: "c", Prim: "mq", C: true, Scenarios: []string{"uncontended", "handoff", "wake", "lock"},
		Brief: []string{}, Check: checkQueues, Files: messageQueues},
	{By: "c", Prim: "pthread-spin", C: true, Places: []string{bench.PlaceCross, bench.PlaceAny, bench.PlaceSame},
		Scenarios: []string{"uncontended", "lock"}, Brief: []string{}},
	cSpin,
}

// cSpin is a lock that spins and never sleeps. It is not measured with two threads on one CPU, because the waiter
// would spin for its whole time slice while the holder cannot run.
var cSpin = &bench.Subject{By: "c", Prim: "spin", C: true, Places: []string{bench.PlaceCross, bench.PlaceAny},
	Scenarios: []string{"handoff", "lock"}}

func cPeer(prim string, scenarios ...string) *bench.Subject {
	return &bench.Subject{By: "c", Prim: prim, C: true, Scenarios: scenarios}
}

// glibcPeer returns a subject that only glibc has: a lock that spins for a while, or a lock that prefers writers.
func glibcPeer(prim string, scenarios ...string) *bench.Subject {
	s := cPeer(prim, scenarios...)
	glibcOnly[s.Name()] = true
	return s
}

var glibcOnly = map[string]bool{}

var errNoCompiler = errors.New("no C compiler")

// findCompiler returns the path of a C compiler.
func findCompiler(cc string) (string, error) {
	if cc == "none" {
		return "", fmt.Errorf("%w: --cc none", errNoCompiler)
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoCompiler, err)
	}
	return path, nil
}

// checkHelper refuses a helper, that is, a compiled C program, if its sources differ from those that this program
// contains. Such a helper would interpret the shared page differently.
func checkHelper(path string) error {
	source, err := readPeer()
	if err != nil {
		return err
	}
	if err := trustedFile(path); err != nil {
		return fmt.Errorf("--helper %s: %w", path, err)
	}
	answer, err := ask(path, helperQuestion)
	if err != nil {
		return fmt.Errorf("--helper %s: %w", path, err)
	}
	if answer != source.digest {
		return fmt.Errorf("--helper %s: it is not of this shmbench, which has the peers %s: build it with shmbench helper", path, source.digest)
	}
	return nil
}

// ask runs a helper, that is, a compiled C program, with a question as its argument, and returns what it prints.
func ask(path, question string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), helperWaitLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, question).Output()
	return strings.TrimSpace(string(out)), err
}

// trustedFile refuses a program file that another user could have changed. A file is trusted if it belongs to this
// user or root, and if no other user can write to it.
func trustedFile(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	uid := int(st.Sys().(*syscall.Stat_t).Uid)
	if uid != os.Geteuid() && uid != 0 || st.Mode()&othersWrite != 0 {
		return fmt.Errorf("it belongs to user %d with mode %v: a helper must belong to this user or root, and nobody else may write to it", uid, st.Mode())
	}
	return nil
}

// With one of these arguments, the helper, a compiled C program, only prints an answer: the digest of its sources,
// or the compiler with its flags on one line and the libc on another.
const (
	helperQuestion  = "--digest"
	builtQuestion   = "--built"
	helperWaitLimit = time.Minute // long, because the helper may start late on a busy machine
)

// sources are the source files of a C program, with their digest. If the field name is "peer", for example, the
// compiler compiles peer.c.
type sources struct {
	name   string
	text   map[string][]byte
	digest string
	flags  []string // arguments of the compiler before the source
	libs   []string // arguments of the compiler after the source
}

func readPeer() (*sources, error) {
	p := &sources{name: "peer", text: map[string][]byte{}, libs: helperLibs}
	var all []string
	for _, name := range []string{"peer.c", "peer.h", "peer_cells.h", "peer_ipc.h", "peer_load.h"} {
		text, err := peerSource.ReadFile(name)
		if err != nil {
			return nil, err
		}
		p.text[name] = text
		all = append(all, string(text))
	}
	p.digest = digest(all...)
	p.flags = append(slices.Clone(helperFlags), "-DPEER_DIGEST=\""+p.digest+"\"", "-DPEER_FLAGS=\""+strings.Join(helperFlags, " ")+"\"")
	return p, nil
}

// BuildProgram returns a program that the compiler cc builds from the given files. If the parameter name is "x", it
// compiles x.c, which can include the other files. As with FindHelper, the program stays in the user's cache for later
// runs.
func BuildProgram(cc, name string, files map[string]string, flags ...string) (*Helper, error) {
	cc, err := findCompiler(cc)
	if err != nil {
		return nil, err
	}
	p := &sources{name: name, text: map[string][]byte{}, flags: flags}
	var all []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		p.text[file] = []byte(files[file])
		all = append(all, file, files[file])
	}
	p.digest = digest(all...)
	return p.find(cc)
}

// BuildWorker compiles the source of a C program that takes part in a test. The parameter header is the text of the C
// library, which the source can include as shmsync.h. The returned file stays open, so that the program can be started
// even after it was deleted from the cache.
func BuildWorker(cc, name, source, header string, flags ...string) (*os.File, error) {
	if os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		return nil, errors.New("SHMSYNC_EXEC_WRAP is set, so Go programs may be of another architecture")
	}
	program, err := BuildProgram(cc, name, map[string]string{name + ".c": source, "shmsync.h": header}, flags...)
	if err != nil {
		return nil, err
	}
	defer program.Remove()
	if err := program.Check(); err != nil {
		return nil, err
	}
	return os.Open(program.Path)
}

// digest returns the beginning of a hash of the texts.
func digest(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d %s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// helperFlags are the compiler's flags for the helper, the C program whose primitives are measured. Its speed depends
// on them.
var helperFlags = []string{"-O2", "-pthread"}

// helperLibs are the arguments of the compiler after the helper's source. In an older libc, the message queues are in
// the library librt.
var helperLibs = []string{"-lrt"}

// build compiles the sources to a file at path. Other processes see either the complete file or none.
func (p *sources) build(cc, path string) error {
	work, err := os.MkdirTemp(filepath.Dir(path), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for name, text := range p.text {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			return err
		}
	}
	built := filepath.Join(work, p.name)
	args := slices.Concat(p.flags, []string{"-o", built, filepath.Join(work, p.name+".c")}, p.libs)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	if err := os.Chmod(built, 0o755); err != nil { // with umask 002 the group could write to it
		return err
	}
	return os.Rename(built, path)
}

// BuildHelper compiles the helper, the C program whose primitives are measured, into a file.
func BuildHelper(cc, file string) error {
	cc, err := findCompiler(cc)
	if err != nil {
		return err
	}
	source, err := readPeer()
	if err != nil {
		return err
	}
	return source.build(cc, file)
}

// program returns a file name for the program that the compiler cc builds from these sources.
func (p *sources) program(cc string) string {
	return p.name + "-" + digest(p.digest, cc, fmt.Sprint(p.flags))
}

// HelperName returns the file name that the helper has in the cache if the compiler cc has built it.
func HelperName(cc string) (string, error) {
	source, err := readPeer()
	if err != nil {
		return "", err
	}
	return source.program(cc), nil
}
