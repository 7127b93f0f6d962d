package diagnose

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// killCommand returns the shell command that sends a signal to the process of a participant. It
// returns an empty string if the process is not visible here, and always for a dump, because a dump
// may be of another host.
func (s *Snapshot) killCommand(signal, name string) string {
	i, ok := s.who[name]
	if !ok || s.Participants[i].HostPID == 0 || s.opts.Dump != nil {
		return ""
	}
	return fmt.Sprintf("kill %s%d", signal, s.Participants[i].HostPID)
}

// end sets Command and Force of a finding to the commands that end the process of a participant. A process may handle
// SIGTERM and continue; for that case Force sends SIGKILL.
func (f *Finding) end(s *Snapshot, name string) {
	f.Command, f.Force = s.killCommand("", name), s.killCommand("-9 ", name)
	f.needs(s, name)
}

// needs adds to the advice that root and the owner of the process may carry out the command. It adds nothing if this
// user may signal the process.
func (f *Finding) needs(s *Snapshot, name string) {
	i, ok := s.who[name]
	if !ok || f.Command == "" {
		return
	}
	if pid := s.Participants[i].HostPID; !maySignal(pid) {
		f.Advice += fmt.Sprintf("; root may do so, or the user %s", ownerOf(pid))
	}
}

// joins adds to the advice which users may carry out the command, if the command joins the arena and this user may not.
func (f *Finding) joins(s *Snapshot) {
	if f.Command == "" || s.ins == nil { // a test has no file
		return
	}
	if may, owner := mayJoin(s.ins.File()); !may {
		f.Advice += "; root may do so"
		if owner != 0 {
			f.Advice += fmt.Sprintf(", or the user %d", owner)
		}
	}
}

// recover sets Advice and Command of a finding about an object that needs a recovery. The parameter app says what the
// application can do, and tool what shmctl can do. shmctl cannot recover every kind of object, and it needs a slot.
func (f *Finding) recover(s *Snapshot, o *Object, app, tool string) {
	f.Advice, f.Command = app, s.Command("show", o)
	switch n := s.living(); {
	case !o.Recoverable():
	case n >= s.Info.MaxParticipants && s.opts.Dump == nil:
		f.Advice += fmt.Sprintf("; shmctl recover needs a slot, and living participants have all %d: end one first", n)
	default:
		f.Advice, f.Command = tool, s.recoverCommand(o)
		f.joins(s)
	}
}

// living returns how many participants are not dead.
func (s *Snapshot) living() (n int) {
	for i := range s.Participants {
		if s.Participants[i].Life != arenakernel.LifeDead {
			n++
		}
	}
	return n
}

// continueAdvice sets the advice on how to continue a stopped participant. No signal continues a process that a
// debugger has stopped or a control group has frozen. The debugger has to continue it or to end, or the group has to be
// thawed.
func (f *Finding) continueAdvice(s *Snapshot, name string) {
	i, ok := s.who[name]
	if ok && s.Participants[i].Life == LifeFrozen {
		f.Advice, f.Command = "thaw its control group, as docker unpause and systemctl thaw do", ""
		if s.opts.Dump == nil {
			f.Command = s.freezer.of(s.Participants[i].HostPID).command()
		}
		return
	}
	if !ok || s.Participants[i].Life != LifeTraced {
		f.Advice, f.Command = "let it go on", s.killCommand("-CONT ", name)
		f.needs(s, name)
		return
	}
	f.Advice, f.Command = "let its debugger continue it, or end the debugger", ""
	if pid := tracerOf(s.Participants[i].HostPID); pid != 0 && s.opts.Dump == nil {
		f.Command, f.Force = fmt.Sprintf("kill %d", pid), fmt.Sprintf("kill -9 %d", pid)
	}
}

// tracerOf returns the pid of the debugger of a process, or 0 if there is no debugger.
func tracerOf(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "\nTracerPid:")
	line, _, _ := strings.Cut(rest, "\n")
	tracer, _ := strconv.Atoi(strings.TrimSpace(line))
	return tracer
}

// recoverable has the kinds of objects that the command "shmctl recover" can make usable again.
var recoverable = []string{"MUTX", "RWMX", "COHM", "FAIR", "SPIN", "RWSP", "MULT", "WGRP", "LTCH", "BARR", "FUTR"}

// Recoverable reports whether a tool can make the object usable again, without the program to which it belongs.
func (o *Object) Recoverable() bool { return slices.Contains(recoverable, o.Kind) }

// recoverCommand returns the command that makes an object usable again.
func (s *Snapshot) recoverCommand(o *Object) string {
	if o.Key != nil {
		return s.change("recover", []string{fmt.Sprintf("--key=%d", *o.Key)}, s.Argument(o))
	}
	return s.change("recover", nil, s.Argument(o))
}

// dumpCommand returns the command that writes the arena to a file.
func (s *Snapshot) dumpCommand() string {
	if s.opts.Dump != nil {
		return ""
	}
	file := strings.ReplaceAll(strings.TrimPrefix(s.Info.Name, "/"), "/", "-") + ".dump"
	return s.command("dump", []string{"--output=" + file})
}

// Argument returns the argument that names an object on the command line. It is the name of the object, if no other
// object is printed with this name and the name is printed as it is. Otherwise it is the offset. If an object has a
// name that looks like the offset, the offset gets leading zeros.
func (s *Snapshot) Argument(o *Object) string {
	if s.named == nil {
		s.named = map[string]int{}
		for i := range s.Objects {
			s.named[s.Objects[i].Name]++
		}
	}
	if s.named[o.Name] == 1 && !strings.Contains(o.Name, "?") {
		return o.Name
	}
	digits := strconv.FormatUint(o.Offset, 16)
	for s.named["0x"+digits] > 0 {
		digits = "0" + digits
	}
	return "0x" + digits
}

// Find returns the objects that an argument may name. A name has precedence over an offset, because programs choose
// names freely. Several objects can be printed with the same name, if Clean has changed their names.
func (s *Snapshot) Find(argument string) (found []*Object) {
	var at *Object
	off, err := strconv.ParseUint(argument, 0, 64)
	for i := range s.Objects {
		switch o := &s.Objects[i]; {
		case err == nil && o.Offset == off:
			at = o
		case o.Name == argument:
			found = append(found, o)
		}
	}
	if at != nil && (len(found) == 0 || at.Name == argument && at.Named) {
		found = append(found, at)
	}
	return found
}

// Command returns a command of shmctl for this arena, quoted for a shell. If o is not nil, the command is for this
// object.
func (s *Snapshot) Command(verb string, o *Object) string {
	if o == nil {
		return s.command(verb, nil)
	}
	return s.command(verb, nil, s.Argument(o))
}

// change returns a command that changes the arena. It is empty for a dump, because dumps are never changed.
func (s *Snapshot) change(verb string, flags []string, names ...string) string {
	if s.opts.Dump != nil {
		return ""
	}
	return s.command(verb, flags, names...)
}

func (s *Snapshot) command(verb string, flags []string, names ...string) string {
	arena := s.Info.Path
	if s.opts.Dump == nil {
		arena = arenaName(arena)
	}
	names = append([]string{arena}, names...)
	words := append([]string{"shmctl", verb}, flags...)
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		words = append(words, "--") // so that the next word is not read as an option
	}
	words = append(words, names...)
	for i := range words {
		words[i] = Quote(words[i])
	}
	return strings.Join(words, " ")
}

// escaped returns a text for shell quotes of the form $'...'. No character of the result can control a terminal.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c >= 0x7f || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Quote quotes a text so that it is one word for a shell. If the text could control a terminal, the result has quotes
// of the form $'...', which not every shell knows; bash does.
func Quote(text string) string {
	special := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r))
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	if Clean(text) != text {
		return "$'" + escaped(text) + "'"
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
