//go:build linux

package snippets

import (
	"archive/zip"
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// startedArena is the name of the arena on the page. Each run of the test uses another name.
const startedArena = "getting-started"

// TestGettingStarted follows the page in an empty directory: it saves the files, types the commands into the
// terminals, and compares their output. It uses the module of this tree.
func TestGettingStarted(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a run without -short: it takes the time of a build")
	}
	for _, tool := range []string{"bash", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "getting-started.md"))
	require.NoError(t, err)
	name := startedArena + "-" + rand.Text() // a number could be mistaken for a process ID of the page
	t.Cleanup(func() { os.Remove("/dev/shm/" + name) })
	steps := walkthrough(strings.ReplaceAll(string(text), startedArena, name))
	require.Greater(t, len(steps), 10)

	p := &pageRun{dir: t.TempDir(), env: startedEnv(t), terminals: make(map[string]*terminal), pids: make(map[string]string)}
	for _, s := range steps {
		p.do(t, s)
	}
}

// startedEnv returns the environment of a user who has not used this library yet. In it, this tree is the version
// v0.1.0 of the module.
func startedEnv(t *testing.T) []string {
	home := t.TempDir()
	proxy := t.TempDir()
	publish(t, proxy)
	goEnv := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	goBin := filepath.Join(goEnv("GOROOT"), "bin")
	env := []string{
		"HOME=" + home,
		"PATH=" + filepath.Join(home, "go", "bin") + ":" + goBin + ":" + os.Getenv("PATH"),
		"GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOSUMDB=off",
		// -trimpath makes the results of the compiler independent of the test directory, so the next run finds them in
		// the cache. -modcacherw makes the files in the module cache writable, so that the test can remove its
		// directory.
		"GOFLAGS=-trimpath -modcacherw",
		"GOCACHE=" + goEnv("GOCACHE"),
		"GOPROXY=file://" + proxy + ",file://" + goEnv("GOMODCACHE") + "/cache/download," + goEnv("GOPROXY"),
		"LC_ALL=C",
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "SSL_CERT_FILE" {
			env = append(env, e)
		}
	}
	return env
}

// publish writes a module proxy, as files, that serves this tree as v0.1.0.
func publish(t *testing.T, proxy string) {
	const version = "v0.1.0"
	root := filepath.Join("..", "..")
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o777))
	write := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o666))
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	write("list", []byte(version+"\n"))
	write(version+".info", []byte(`{"Version":"`+version+`"}`))
	write(version+".mod", mod)

	out, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(t, err)
	z := zip.NewWriter(out)
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		rel, err := filepath.Rel(root, name)
		require.NoError(t, err)
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return fs.SkipDir // another module, or not a part of a package
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: module + "@" + version + "/" + filepath.ToSlash(rel)})
		require.NoError(t, err)
		src, err := os.Open(name)
		require.NoError(t, err)
		defer src.Close()
		_, err = io.Copy(w, src)
		return err
	})
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, out.Close())
}

// step is a block of the page: a file to save, or commands and output of a terminal.
type step struct {
	line     int
	file     string
	terminal string
	lines    []string
}

var (
	fileComment     = regexp.MustCompile(`^<!-- file: (\S+) -->$`)
	terminalComment = regexp.MustCompile(`^<!-- terminal: (\S+) -->$`)
)

// walkthrough returns the files and terminal blocks of a page, in order. A terminal block without a comment
// belongs to the first terminal.
func walkthrough(text string) (steps []step) {
	file, terminal, fence, number := "", "first", "", 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		last := len(steps) - 1
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = line
			if file != "" || fence == "```console" {
				steps = append(steps, step{line: number, file: file, terminal: terminal})
			} else {
				fence = "```other"
			}
		case line == "```":
			fence, file, terminal = "", "", "first"
		case fence != "" && fence != "```other":
			steps[last].lines = append(steps[last].lines, line)
		case fence == "" && fileComment.MatchString(line):
			file = fileComment.FindStringSubmatch(line)[1]
		case fence == "" && terminalComment.MatchString(line):
			terminal = terminalComment.FindStringSubmatch(line)[1]
		}
	}
	return steps
}

// pageRun is the state of one run of the test.
type pageRun struct {
	dir       string
	inside    string // below dir: the directory to which the first block changes
	env       []string
	terminals map[string]*terminal
	pids      map[string]string // maps the process IDs on the page to those of this run
}

func (p *pageRun) do(t *testing.T, s step) {
	if s.file != "" {
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, p.inside, s.file), []byte(strings.Join(s.lines, "\n")+"\n"), 0o666))
		return
	}
	term := p.terminals[s.terminal]
	if term == nil {
		term = openTerminal(t, filepath.Join(p.dir, p.inside), p.env)
		p.terminals[s.terminal] = term
	}
	for i := 0; i < len(s.lines); {
		command, isCommand := strings.CutPrefix(s.lines[i], "$ ")
		if isCommand {
			i++
			if dir, ok := strings.CutPrefix(command, "cd "); ok {
				p.inside = filepath.Join(p.inside, dir)
			}
		} else {
			require.NotNil(t, term.running, "docs/getting-started.md:%d: no command prints this", s.line+1+i)
			command = "" // the command of an earlier block still runs
		}
		var want []string
		for ; i < len(s.lines) && !strings.HasPrefix(s.lines[i], "$ "); i++ {
			want = append(want, s.lines[i])
		}
		where := fmt.Sprintf("docs/getting-started.md:%d: %s", s.line+i, command)
		t.Log(where)
		if isCommand {
			require.Nil(t, term.running, where)
			for _, pid := range pagePID.FindAllString(command, -1) {
				require.Contains(t, p.pids, pid, "%s: nothing printed this process ID before", where)
			}
			term.start(t, p.actual(command))
		}
		p.expect(t, term, want, where)
	}
}

// actual replaces the process IDs of the page in text by those of this run.
func (p *pageRun) actual(text string) string {
	return pagePID.ReplaceAllStringFunc(text, func(pid string) string {
		if is, ok := p.pids[pid]; ok {
			return is
		}
		return pid
	})
}

var (
	pagePID     = regexp.MustCompile(`\b47\d\d\b`)
	pageTime    = regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|ms|s|m|h|d))+\b`)
	pageSlot    = regexp.MustCompile(`\b\d+\.\d+\b`)
	shellReport = regexp.MustCompile(`^.*: line \d+: +\d+ (Killed)\b.*$`)
)

// plain replaces the parts of a line that differ from run to run, such as times, participants and the widths of
// columns.
func plain(line string) string {
	line = shellReport.ReplaceAllString(line, "$1")
	line = pageTime.ReplaceAllString(line, "TIME")
	line = pageSlot.ReplaceAllString(line, "PARTICIPANT")
	return strings.Join(strings.Fields(line), " ")
}

// expect compares the output of the command in a terminal with want. It returns when the command has ended, or
// when the command has printed the last wanted line and goes on.
func (p *pageRun) expect(t *testing.T, term *terminal, want []string, where string) {
	any := len(want) == 1 && want[0] == "..."
	var got []string
	for {
		line, ended := term.next(t, where, got)
		if ended {
			break
		}
		got = append(got, line)
		if !any && len(got) == len(want) && halfWay.MatchString(line) {
			break // the page continues in another terminal
		}
	}
	if any {
		return
	}
	require.Len(t, got, len(want), "%s\n%s", where, strings.Join(got, "\n"))
	for i := range want {
		w, g := p.actual(want[i]), got[i]
		// The page shows an example of a process ID. Where this ID appears for the first time, read the real ID
		// from the same place in the output of the command.
		if pid := pagePID.FindString(w); pid != "" {
			if m := regexp.MustCompile(`^` + strings.Replace(regexp.QuoteMeta(w), pid, `(\d+)`, 1) + `$`).FindStringSubmatch(g); m != nil {
				p.pids[pid] = m[1]
				w = p.actual(w)
			}
		}
		require.Equal(t, plain(w), plain(g), where)
	}
}

// halfWay matches what a command of the page prints before it waits to be killed.
var halfWay = regexp.MustCompile(`^half way: process \d+$`)

// terminal is a shell in which the test types commands.
type terminal struct {
	in      io.Writer
	lines   chan string
	running *int // the number of the running command
	count   int
}

func openTerminal(t *testing.T, dir string, env []string) *terminal {
	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(t, cmd.Start())
	w.Close()
	term := &terminal{in: in, lines: make(chan string)}
	done := make(chan struct{})
	go func() {
		defer close(term.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			select {
			case term.lines <- s.Text():
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kills all processes of the group
		cmd.Wait()
		r.Close()
	})
	return term
}

// start types a command. The shell prints a line when the command has ended, with its exit status.
func (term *terminal) start(t *testing.T, command string) {
	term.count++
	n := term.count
	term.running = &n
	_, err := fmt.Fprintf(term.in, "{ %s\n} </dev/null; echo \"@ended %d $?\"\n", command, n)
	require.NoError(t, err)
}

// next returns the next line of the running command, or reports that the command has ended.
func (term *terminal) next(t *testing.T, where string, got []string) (line string, ended bool) {
	select {
	case line, ok := <-term.lines:
		require.True(t, ok, "%s: the shell ended\n%s", where, strings.Join(got, "\n"))
		status, is := strings.CutPrefix(line, fmt.Sprintf("@ended %d ", *term.running))
		if !is {
			return line, false
		}
		term.running = nil
		killed := len(got) == 1 && plain(got[0]) == "Killed"
		require.True(t, status == "0" || killed, "%s: status %s\n%s", where, status, strings.Join(got, "\n"))
		return "", true
	case <-time.After(proctest.Scale(5 * proctest.DefaultTimeout)):
		require.Fail(t, "the command hangs", "%s\n%s", where, strings.Join(got, "\n"))
		return "", false
	}
}
