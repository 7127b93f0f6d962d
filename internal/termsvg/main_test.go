package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// texts parses a picture and gives its lines.
func texts(t *testing.T, svg string) []string {
	var doc struct {
		Text []string `xml:"text"`
	}
	require.NoError(t, xml.Unmarshal([]byte(svg), &doc))
	return doc.Text
}

func TestDraw(t *testing.T) {
	lines := []string{"$ x", "a < b & c", "  d"}
	var b strings.Builder
	require.NoError(t, draw(&b, lines, time.Second))
	require.Equal(t, lines, texts(t, b.String()))
	require.Contains(t, b.String(), `class="in" style="animation-delay:0.00s"`)
	require.Contains(t, b.String(), `class="dim" style="animation-delay:2.00s"`)
}

// TestDeath checks that the picture of the README shows the output of the example.
func TestDeath(t *testing.T) {
	svg, err := os.ReadFile(filepath.Join("..", "..", "docs", "death.svg"))
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`^\$ go run ./examples/death -kills 1
teller  \(pid \d+\) is half way through a transfer of 30
auditor \(pid \d+\) reads \[60 40\], without waiting
auditor \(pid \d+\) wants to transfer 5, and waits for teller \(pid \d+, slot .*\)
\$ kill -9 \d+
auditor has done so after \d+\.\d\d ms
  accounts \[55 45\]: nothing of the transfer of 30 is left$`), strings.Join(texts(t, string(svg)), "\n"))
}
