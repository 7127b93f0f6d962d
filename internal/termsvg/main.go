// Command termsvg runs a command and draws what it prints as a terminal, line by
// line, in an SVG that moves:
//
//	go run ./internal/termsvg -o docs/death.svg go run ./examples/death -kills 1
//
// The picture has the lines that the command printed. They appear more slowly than the command
// printed them, so that one can read them. A viewer that does not show motion shows all lines.
package main

import (
	"bufio"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Sizes of the picture in pixels. They are for a font whose letters are 0.6 times as wide as they are high.
const (
	fontSize   = 13.0
	charWidth  = fontSize * 0.602
	lineHeight = 19.0
	margin     = 14.0
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "", "the file to write")
	pace := flag.Duration("pace", 900*time.Millisecond, "time between two lines")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		log.Fatal("usage: termsvg -o FILE COMMAND...")
	}
	lines, err := record(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	f, err := os.Create(*out)
	if err != nil {
		log.Fatal(err)
	}
	if err := draw(f, lines, *pace); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}

// record runs a command. It returns the command line, and the lines that the command has printed.
func record(argv []string) (lines []string, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	lines = append(lines, "$ "+strings.Join(argv, " "))
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines, nil
}

const style = `
text { font: 13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d5d9e0; white-space: pre }
.in { fill: #8fd18a; font-weight: bold }
.dim { fill: #9aa4b2 }
@keyframes come { from { opacity: 0 } }
@media (prefers-reduced-motion: no-preference) { text { animation: come 1ms step-end backwards } }
`

// draw writes the picture. A line that begins with "$ " is one that the user types.
func draw(w io.Writer, lines []string, pace time.Duration) error {
	longest := 0
	for _, line := range lines {
		longest = max(longest, len([]rune(line)))
	}
	width := 2*margin + float64(longest)*charWidth
	height := 2*margin + float64(len(lines))*lineHeight
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n",
		width, height, width, height)
	fmt.Fprintf(b, "<title>%s</title>\n<style>%s</style>\n", escape(lines[0]), style)
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" rx="6" fill="#16191f"/>`+"\n")
	for i, line := range lines {
		class := ""
		switch {
		case strings.HasPrefix(line, "$ "):
			class = ` class="in"`
		case strings.HasPrefix(line, " "):
			class = ` class="dim"`
		}
		fmt.Fprintf(b, `<text x="%.0f" y="%.1f" xml:space="preserve"%s style="animation-delay:%.2fs">%s</text>`+"\n",
			margin, margin+float64(i)*lineHeight+fontSize, class, (time.Duration(i) * pace).Seconds(), escape(line))
	}
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) // a strings.Builder has no errors
	return b.String()
}
