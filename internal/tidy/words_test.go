package tidy

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// oldWords are words that were replaced by the words of the field, with their replacements. A word also counts as
// a part of a name. docs/glossary.md defines the new words.
var oldWords = map[string]string{
	"bereave": "mark owner-dead", "bereaved": "marked owner-dead", "bereaves": "marks owner-dead", "bereft": "not recoverable",
	"burial": "reap", "burials": "reaps", "buried": "reaped", "buries": "reaps", "bury": "reap", "burying": "reaping", "unburied": "unreaped",
	"mourn": "reap", "mourned": "reaped", "mourns": "reaps", "undertaker": "reaper", "undertakers": "reapers",
	"obit": "death record", "obits": "death records", "obituaries": "death records", "obituary": "death record",
	"sentinel": "death watcher", "sentinels": "death watchers",
	"bed": "sleep spec", "beds": "sleep specs", "seat": "wait node", "seats": "wait nodes", "unseat": "return a wait node",
	"bell": "wake word, doorbell", "bells": "wake words, doorbells", "hub": "poller", "hubs": "pollers", "hubbed": "polled",
	"lineup": "enqueue", "tallies": "counters", "tally": "counter",
	"fate": "outcome", "fates": "outcomes", "patience": "timeout",
	"crew": "worker group", "crewed": "group", "crews": "worker groups", "troupe": "worker group",
	"hostage": "the process that a peer scribbles on", "hostages": "processes that a peer scribbles on",
	"crosswise": "store-load pair", "deaf": "unresponsive", "stirred": "contended", "redelivered": "attempts",
}

// oldWordsKept are the places where an old word has another meaning, or is a name that others have chosen.
var oldWordsKept = []struct{ files, line *regexp.Regexp }{
	{regexp.MustCompile(`^internal/tidy/words_test\.go$|^docs/glossary\.md$`), regexp.MustCompile(``)},
	{regexp.MustCompile(``), regexp.MustCompile(`GitHub|(?i:sentinel errors?|errors? sentinels?|sentinels? and errno|SentinelAndErrno|sentinelNames|are sentinels)`)},
	{regexp.MustCompile(`^(internal/arenakernel/|prims/|shm/)?errors(_test)?\.go$|^(internal/arenakernel/agent_proc|prims/actor)_test\.go$`), regexp.MustCompile(`(?i:sentinel)`)},
}

func wordIsKept(file, line string) bool {
	for _, k := range oldWordsKept {
		if k.files.MatchString(file) && k.line.MatchString(line) {
			return true
		}
	}
	return false
}

// subwords calls f for the words of which a line consists: HubNode, hub_node and HUB_NODE all consist of hub and
// node.
func subwords(line string, f func(word string)) {
	runes := []rune(line)
	start := -1
	for i := 0; i <= len(runes); i++ {
		if i == len(runes) || !unicode.IsLetter(runes[i]) {
			if start >= 0 {
				f(strings.ToLower(string(runes[start:i])))
			}
			start = -1
			continue
		}
		switch {
		case start < 0:
			start = i
		case unicode.IsUpper(runes[i]) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			f(strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
}

var oldWordRule = rule{
	name: "no old words",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if !f.isText() || path.Ext(f.path) == ".svg" || strings.Contains(f.path, "testdata/fuzz/") {
				continue
			}
			subwords(strings.TrimSuffix(f.path, path.Ext(f.path)), func(word string) {
				if to := oldWords[word]; to != "" {
					found = append(found, finding{f.path, fmt.Sprintf("its name says %q instead of %s", word, to)})
				}
			})
			for i, line := range strings.Split(string(f.src), "\n") {
				subwords(line, func(word string) {
					if to := oldWords[word]; to != "" && !wordIsKept(f.path, line) {
						found = append(found, f.atLine(i+1, "says %q instead of %s", word, to))
					}
				})
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go": "package a\n\n// The doorbell of https://github.com/x on GitHub: who was reaped.\nvar hubris, reseat int\n",
		"x.md":   "Tests of sentinel errors.\n",
	},
	bad: []sample{
		{map[string]string{"a/x.go": "package a\n\nvar HubNode int\n"}, `a/x.go:3: says "hub" instead of poller`},
		{map[string]string{"a/x.h": "int shmi_seat_take(void);\n"}, `a/x.h:1: says "seat" instead of wait node`},
		{map[string]string{"x.md": "one\nthe burial\n"}, `x.md:2: says "burial" instead of reap`},
		{map[string]string{"a/tally_word.go": "package a\n"}, `its name says "tally" instead of counter`},
	},
}

// headlessWho finds a "who" that has no noun before it, and that is not in a question.
var headlessWho = regexp.MustCompile(`\b(?:by|for|to|with|from|than|at|of|if|when|while|before|as) who\b`)

// headlessBegin finds a statement that begins with "Who": "Who holds it sleeps." It does not match a question.
var headlessBegin = regexp.MustCompile(`(?:^|[.:] )Who (?:just [a-z]+|[a-z]+s|[a-z]+ed|became|came|died|gave|has|had|may|took)\b[^?]*$`)

// headlessSubject finds a "who" or "Whoever" without a noun before it that is the subject or the object of a
// statement: "Whoever dies leaves", "writers: who holds it", "only who holds it". After a colon, it finds a "what"
// as well: "the peer: what is compared".
var headlessSubject = regexp.MustCompile(`\bWhoever\b|\b(?:writers|readers): +who\b|; (?:then )?who [a-z]+s\b|\bonly who\b|: (?:who (?:waits|holds)|what is [a-z]+ed)\b`)

// headlessAnd finds a "who" after "and". Such a "who" is correct in the second half of an indirect question: "it
// says what waits, and who holds it". So it passes if an earlier word of the sentence can begin such a question. It
// also passes after a colon, which begins a list of what a command shows.
var (
	headlessAnd   = regexp.MustCompile(`\band who [a-z]+s\b`)
	askedBefore   = regexp.MustCompile(`(?i)\b(?:who|whom|whose|what|which|when|where|how|why|whether|since|says?|said|tells?|told|knows?|names?|shows?|sees?|records?|finds?|asks?|lists?|prints?|about)\b|:`)
	sentenceBreak = regexp.MustCompile(`[.;!?] `)
)

// headless returns a "who" that follows no noun, from a line of text. If several patterns match, it returns the first
// match of the first of these patterns. It ignores a "Who" at the beginning of a sentence, which headlessBegin finds.
func headless(text string) string {
	for _, re := range []*regexp.Regexp{headlessWho, headlessSubject} {
		if m := re.FindString(text); m != "" {
			return m
		}
	}
	for _, at := range headlessAnd.FindAllStringIndex(text, -1) {
		sentence := text[:at[0]]
		if breaks := sentenceBreak.FindAllStringIndex(sentence, -1); breaks != nil {
			sentence = sentence[breaks[len(breaks)-1][1]:]
		}
		// At the beginning of a line, the sentence may have begun on the line before.
		if strings.TrimSpace(sentence) != "" && !askedBefore.MatchString(sentence) {
			return text[at[0]:at[1]]
		}
	}
	return ""
}

// secondReading finds phrases that readers of random samples did not understand at once, and says what to write
// instead.
var secondReading = []struct {
	turn    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\bthat there (?:is|are) not\b`), "say invalid, impossible or does not exist"},
	{regexp.MustCompile(`\bmeans that (?:it|they) (?:learn|never)`), "name what the value does"},
	{regexp.MustCompile(`\bin (?:its|his|their) stead\b`), "say instead"},
	{regexp.MustCompile(`\breaders:.*\blooks\b`), "say periodic checks"},
	{regexp.MustCompile(`(?i)\bwhat (?:a|the|each) \w+ (?:has|have) of\b`), "name the part"},
}

// commentOf returns the comment on a line of a program, and whether there is one.
func commentOf(ext, line string) (text string, ok bool) {
	if _, text, ok = strings.Cut(line, "//"); ok {
		return strings.TrimSpace(text), true
	}
	if t := strings.TrimSpace(line); strings.HasPrefix(t, "*") {
		return strings.TrimLeft(t, "/* "), true
	}
	if ext != ".go" || strings.HasPrefix(strings.TrimSpace(line), "/*") {
		_, text, ok = strings.Cut(line, "/*")
	}
	return strings.TrimLeft(text, "* "), ok
}

var headlessWhoRule = rule{
	name: `every "who" has a noun before it`,
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			ext := path.Ext(f.path)
			if !f.isText() || ext != ".go" && ext != ".md" && ext != ".h" && ext != ".c" || f.path == "internal/tidy/words_test.go" {
				continue
			}
			lines := strings.Split(string(f.src), "\n")
			for i, line := range lines {
				text := line
				if ext != ".md" {
					comment, ok := commentOf(ext, line)
					if !ok {
						continue
					}
					text = comment
				}
				for _, t := range secondReading {
					if m := t.turn.FindString(text); m != "" {
						found = append(found, f.atLine(i+1, "%q: %s", m, t.instead))
					}
				}
				if m := headless(text); m != "" {
					found = append(found, f.atLine(i+1, "%q: name the actor", m))
				} else if headlessBegin.MatchString(text) && !strings.HasPrefix(text, "#") && !documentsWho(lines[i:]) {
					found = append(found, f.atLine(i+1, "a sentence begins with who: name the actor"))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"a/x.go": "package a\n\n// Who gives the identity of n: it says who that is.\nfunc Who(n int) {}\n\n// The waiter who comes first has it.\nvar x int\n",
		"b/x.go": "package b\n\n//\twriters: the holder; a waiter, who has lost\n//\treaders: all, whoever they are\nvar x int // the one who has it\n",
		"x.md": "Who waits? A waiter who waits sleeps.\nIt says what is held and who waits.\nIt shows waits: since when, and who holds it.\n" +
			"It prints holds, and who has them.\nEach says who died; and who reaps it is in the record.\n",
		"x.h": "int a; /* the holder and the waiter who waits */\n",
	},
	bad: []sample{
		{map[string]string{"x.md": "It panics for a mode that there is not.\n"}, `x.md:1: "that there is not"`},
		{map[string]string{"a/x.go": "package a\n\n// Spin is it: 0 means that they learn.\nvar x int\n"}, `a/x.go:3: "means that they learn"`},
		{map[string]string{"a/x.go": "package a\n\n// Others came in their stead.\nvar x int\n"}, `a/x.go:3: "in their stead"`},
		{map[string]string{"a/x.go": "package a\n\n//\treaders: the same, looks\nvar x int\n"}, `a/x.go:3: "readers: the same, looks"`},
		{map[string]string{"a/x.h": "/* What a participant has of it. */\n"}, `a participant has of`},
		{map[string]string{"x.md": "one\nThe name of who has it.\n"}, `x.md:2: "of who"`},
		{map[string]string{"x.md": "| a death | Whoever comes next finds it |\n"}, `x.md:1: "Whoever"`},
		{map[string]string{"a/x.go": "package a\n\n// A hold ends. Whoever waits has it.\nvar x int\n"}, `a/x.go:3: "Whoever"`},
		{map[string]string{"a/x.go": "package a\n\n//\twriters: who holds the lock\nvar x int\n"}, `a/x.go:3: "writers: who"`},
		{map[string]string{"a/x.go": "package a\n\n//\treaders: who recovers from a death\nvar x int\n"}, `a/x.go:3: "readers: who"`},
		{map[string]string{"a/x.go": "package a\n\n//\twriters: the owner; who holds the lock\nvar x int\n"}, `a/x.go:3: "; who holds"`},
		{map[string]string{"a/x.go": "package a\n\nvar x int // written by the owner; then who frees it\n"}, `a/x.go:3: "; then who frees"`},
		{map[string]string{"x.md": "A word that only who holds the lock changes.\n"}, `x.md:1: "only who"`},
		{map[string]string{"x.md": "| every wait: who waits, and since when |\n"}, `x.md:1: ": who waits"`},
		{map[string]string{"x.md": "| `peer`: what is compared |\n"}, `x.md:1: ": what is compared"`},
		{map[string]string{"a/x.h": "int a; /* changed by the owner, and who takes it off */\n"}, `a/x.h:1: "and who takes"`},
		{map[string]string{"x.md": "It is held. The owner, and who reaps it, change the word.\n"}, `x.md:1: "and who reaps"`},
		{map[string]string{"a/x.go": "package a\n\n// Who waits sleeps.\nvar x int\n"}, "a/x.go:3: a sentence begins with who"},
		{map[string]string{"a/x.go": "package a\n\n// It is dead. Who took it off has died, too.\nvar x int\n"}, "a/x.go:3: a sentence begins with who"},
		{map[string]string{"a/x.h": "/* Woken by who dies. */\n"}, `a/x.h:1: "by who"`},
	},
}

// documentsWho reports whether a comment is that of a function called Who.
func documentsWho(lines []string) bool {
	for _, line := range lines {
		if t := strings.TrimSpace(line); !strings.HasPrefix(t, "//") {
			return strings.Contains(t, "Who(") || strings.HasPrefix(t, "Who ")
		}
	}
	return false
}

// maxColumns is the maximal length of a line of a document, unless the line is a row of a table, an address or
// code.
const maxColumns = 120

var columnsRule = rule{
	name: "lines of documents are short",
	check: func(files []*file) (found []finding) {
		for _, f := range files {
			if path.Ext(f.path) != ".md" || f.path == "docs/shmbench-results.md" { // which shmbench writes
				continue
			}
			code := false
			for i, line := range bytes.Split(f.src, []byte("\n")) {
				if bytes.HasPrefix(line, []byte("```")) {
					code = !code
				}
				if code || bytes.HasPrefix(line, []byte("|")) || bytes.HasPrefix(line, []byte("![")) || bytes.HasPrefix(line, []byte("<")) {
					continue
				}
				if n := utf8.RuneCount(line); n > maxColumns {
					found = append(found, f.atLine(i+1, "%d characters, more than %d", n, maxColumns))
				}
			}
		}
		return found
	},
	good: map[string]string{
		"x.md":   strings.Repeat("ä", maxColumns) + "\n| " + strings.Repeat("x", maxColumns) + " |\n```\n" + strings.Repeat("x", 2*maxColumns) + "\n```\n",
		"a/x.go": "package a\n\n// " + strings.Repeat("x", maxColumns) + "\n",
	},
	bad: []sample{
		{map[string]string{"x.md": "one\n" + strings.Repeat("x ", maxColumns) + "\n"}, "x.md:2: 240 characters, more than 120"},
	},
}
