//go:build linux

package peers

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shmsync/shmsync/internal/bench"
)

//go:embed peer.c peer.h peer_cells.h peer_ipc.h peer_load.h
var peerSource embed.FS

// CPeers are the primitives that a C program has on this host. The embedded helper runs them.
var CPeers = []*bench.Subject{
	cPeer("futex", "uncontended", "handoff", "wake", "lock", "event"),
	cPeer("futex-spin1000", "uncontended", "handoff", "wake", "lock"),
	cPeer("pthread", "uncontended", "lock", "multi"),
	{By: "c", Prim: "robust", C: true, Brief: []string{"uncontended", "lock", "crash", "rw", "multi", "intruder"},
		Scenarios: []string{"uncontended", "lock", "crash", "rw", "multi", "home", "intruder"}},
	cPeer("cond", "handoff", "wake", "cond", "event", "queue"),
	cPeer("sem", "uncontended", "handoff", "wake", "lock", "sem"),
	cPeer("rwlock", "uncontended", "readers", "rw"),
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

// cSpin never sleeps, so two of its threads on one CPU wait for the scheduler's time slices.
var cSpin = &bench.Subject{By: "c", Prim: "spin", C: true, Places: []string{bench.PlaceCross, bench.PlaceAny},
	Scenarios: []string{"handoff", "lock"}}

func cPeer(prim string, scenarios ...string) *bench.Subject {
	return &bench.Subject{By: "c", Prim: prim, C: true, Scenarios: scenarios}
}

var errNoCompiler = errors.New("no C compiler")

// findCompiler gives the path of a C compiler.
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

// checkHelper refuses a helper that was built from other sources than this program contains: both
// would interpret the shared page differently.
func checkHelper(path string) error {
	source, err := readPeer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperWaitLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, helperQuestion).Output()
	if err != nil {
		return fmt.Errorf("--helper %s: %w", path, err)
	}
	if answer := strings.TrimSpace(string(out)); answer != source.digest {
		return fmt.Errorf("--helper %s: it is not of this shmbench, which has the peers %s: build it with shmbench helper", path, source.digest)
	}
	return nil
}

// helperQuestion makes a helper print the digest of its sources and exit.
const (
	helperQuestion  = "--digest"
	helperWaitLimit = time.Minute // a busy machine is late to start it
)

// peerFiles are the sources of the helper, and their digest.
type peerFiles struct {
	text   map[string][]byte
	digest string
}

func readPeer() (*peerFiles, error) {
	p := &peerFiles{text: map[string][]byte{}}
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
	return p, nil
}

// digest is the beginning of a hash of some texts.
func digest(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d %s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// flags are the compiler flags before the source.
func (p *peerFiles) flags() []string {
	return []string{"-O2", "-pthread", "-DPEER_DIGEST=\"" + p.digest + "\""}
}

// helperLibs are the flags after the source: in an older libc the message queues are in a library
// of their own.
var helperLibs = []string{"-lrt"}

// build compiles the sources. The file at path is complete, or does not exist.
func (p *peerFiles) build(cc, path string) error {
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
	built := filepath.Join(work, "peer")
	args := slices.Concat(p.flags(), []string{"-o", built, filepath.Join(work, "peer.c")}, helperLibs)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return os.Rename(built, path)
}

// BuildHelper compiles the helper into a file.
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

// program names the program that a compiler builds from the sources.
func (p *peerFiles) program(cc string) string {
	return "peer-" + digest(p.digest, cc, fmt.Sprint(p.flags()))
}

// HelperName is the name in the cache of the helper that a compiler builds from the sources.
func HelperName(cc string) (string, error) {
	source, err := readPeer()
	if err != nil {
		return "", err
	}
	return source.program(cc), nil
}
