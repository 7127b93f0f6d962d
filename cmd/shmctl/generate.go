//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type (
	completionCmd struct {
		Shell string `arg:"" enum:"bash,zsh,fish" help:"One of ${enum}."`
	}
	manCmd struct{}
)

// Run writes the completion script of a shell. The script asks shmctl for the candidates.
func (c *completionCmd) Run(s *session) error {
	text := map[string]string{"bash": completionBash, "zsh": completionZsh, "fish": completionFish}[c.Shell]
	_, err := io.WriteString(s.stdout, text)
	return err
}

// commands returns the commands for users: all that are not hidden.
func commands(model *kong.Application) (all []*kong.Node) {
	for _, n := range model.Children {
		if n.Type == kong.CommandNode && !n.Hidden {
			all = append(all, n)
		}
	}
	return all
}

// flags returns the flags of a command, and the flags that all commands have.
func flags(n *kong.Node) (all []*kong.Flag) {
	for _, group := range n.AllFlags(true) {
		all = append(all, group...)
	}
	return all
}

// takesArena reports whether the first argument of a command is an arena.
func takesArena(n *kong.Node) bool {
	return len(n.Positional) > 0 && n.Positional[0].Name == "arena"
}

// Run writes the manual page in the man macros of troff.
func (c *manCmd) Run(s *session) error {
	esc := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "→", `\(->`).Replace
	var b strings.Builder
	b.WriteString(".TH SHMCTL 1\n.SH NAME\nshmctl \\- look at arenas of shared memory from outside\n")
	b.WriteString(".SH SYNOPSIS\n.B shmctl\n[\\-\\-json] COMMAND [ARGUMENT ...]\n.SH DESCRIPTION\n")
	b.WriteString(esc(description) + "\n.SH OPTIONS\n")
	for _, f := range s.model.Flags {
		manFlag(&b, f, esc)
	}
	b.WriteString(".SH COMMANDS\n")
	for _, n := range commands(s.model) {
		fmt.Fprintf(&b, ".SS %s\n", esc(strings.TrimPrefix(n.Summary(), "shmctl ")))
		b.WriteString(esc(n.Help) + "\n")
		for _, p := range n.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", esc(strings.ToUpper(p.Name)), esc(helpOf(p)))
		}
		for _, f := range n.Flags {
			manFlag(&b, f, esc)
		}
		b.WriteString(".PP\nExamples:\n")
		for _, e := range examples[n.Name] {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", esc(e.line), esc(e.does))
		}
	}
	b.WriteString(".SH EXIT STATUS\n" + esc(strings.TrimPrefix(exitHelp, "Exit status: ")) + "\n")
	b.WriteString(".SH JSON\n" + esc("With --json each command but metrics, completion and man prints one document, whose member schema is "+schema+
		". Within a version members are only added. Times are RFC 3339, ages are in nanoseconds; what nobody knows is null. "+
		"docs/shmctl.md has the members.") + "\n")
	_, err := io.WriteString(s.stdout, b.String())
	return err
}

func helpOf(v *kong.Value) string {
	return strings.ReplaceAll(v.Help, "${enum}", strings.ReplaceAll(v.Enum, ",", ", "))
}

func manFlag(b *strings.Builder, f *kong.Flag, esc func(string) string) {
	name := esc("--" + f.Name)
	if f.Short != 0 {
		name = esc("-"+string(f.Short)) + ", " + name
	}
	if !f.IsBool() {
		name += "=" + esc(f.FormatPlaceHolder())
	}
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", name, esc(helpOf(f.Value)))
}
