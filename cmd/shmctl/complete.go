//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// completeCmd is the command that the completions of all shells call. It prints the candidates for the last of its
// words, one on each line.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words of the command line after shmctl, up to the cursor."`
}

// Run prints the candidates. If the words contain a mistake, it prints nothing.
func (c *completeCmd) Run(s *session) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" { // kong leaves the separator in place
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	for _, candidate := range candidates(s.model, words[:len(words)-1], last) {
		if strings.HasPrefix(candidate, last) {
			fmt.Fprintln(s.stdout, candidate)
		}
	}
	return nil
}

// candidates returns the words that may complete a command line. The parameter before has the complete words, and the
// parameter last has the word at the cursor.
func candidates(model *kong.Application, before []string, last string) (all []string) {
	var node *kong.Node
	var args []string // arguments of the command so far
	var value *kong.Flag
	for _, word := range before {
		switch {
		case value != nil:
			value = nil
		case strings.HasPrefix(word, "-") && node != nil:
			value = valueFlag(node, word)
		case strings.HasPrefix(word, "-"):
		case node == nil:
			i := slices.IndexFunc(commands(model), func(n *kong.Node) bool { return n.Name == word })
			if i < 0 {
				return nil
			}
			node = commands(model)[i]
		default:
			args = append(args, word)
		}
	}
	switch {
	case node == nil:
		for _, n := range commands(model) {
			all = append(all, n.Name)
		}
		return append(all, "--json", "--version", "--help")
	case value != nil:
		return enumOf(value.Value)
	case strings.HasPrefix(last, "-"):
		for _, f := range flags(node) {
			all = append(all, "--"+f.Name)
		}
		return all
	}
	return argumentsOf(node, args)
}

// valueFlag returns the flag that word names, if the next word is the value of this flag. Otherwise
// it returns nil.
func valueFlag(node *kong.Node, word string) *kong.Flag {
	for _, f := range flags(node) {
		if !f.IsBool() && (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) {
			return f
		}
	}
	return nil
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return strings.Split(v.Enum, ",")
}

// argumentsOf returns the candidates for the next argument of a command. args are the arguments so far.
func argumentsOf(node *kong.Node, args []string) []string {
	if len(node.Positional) == 0 {
		return nil
	}
	p := node.Positional[min(len(args), len(node.Positional)-1)]
	if len(args) >= len(node.Positional) && !p.IsSlice() {
		return nil
	}
	switch {
	case p.Enum != "":
		return enumOf(p)
	case p.Name == "arena":
		return arenaNames()
	case p.Name == "name" && len(args) == 1 && takesArena(node):
		return linesOf("objects", "-o", "name", "--", args[0])
	}
	return nil
}

// arenaNames returns the names of the arenas of this host. It does not open the arenas, because a completion must be
// fast.
func arenaNames() (names []string) {
	for _, info := range segments(io.Discard) {
		if diagnose.Clean(info.Name) == info.Name && isArenaWith(pathOfArgument(info.Name), unix.O_NOFOLLOW) {
			names = append(names, info.Name)
		}
	}
	return names
}

// linesOf runs a command of shmctl and returns the lines that it prints.
func linesOf(args ...string) []string {
	var out, errs bytes.Buffer
	realMain(args, &out, &errs)
	if out.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// The completion scripts of the shells. If shmctl has no candidate, they complete file names.
const (
	completionBash = `# Completions of shmctl for bash: source <(shmctl completion bash)
_shmctl() {
	local i
	mapfile -t COMPREPLY < <(shmctl complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	for i in "${!COMPREPLY[@]}"; do
		printf -v "COMPREPLY[i]" %q "${COMPREPLY[i]}"
	done
}
complete -o default -F _shmctl shmctl
`
	completionZsh = `#compdef shmctl
# Completions of shmctl for zsh: source <(shmctl completion zsh)
_shmctl() {
	local -a candidates
	candidates=("${(@f)$(shmctl complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n ${candidates[1]} ]]; then
		compadd -a candidates
	else
		_files
	fi
}
if [[ ${funcstack[1]} = _shmctl ]]; then
	_shmctl "$@"
elif (( $+functions[compdef] )); then
	compdef _shmctl shmctl
fi
`
	completionFish = `# Completions of shmctl for fish: shmctl completion fish | source
complete -c shmctl -a '(shmctl complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`
)
