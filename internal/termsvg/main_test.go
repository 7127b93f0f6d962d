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

// The picture of the README is what the example prints.
func TestDeath(t *testing.T) {
	svg, err := os.ReadFile(filepath.Join("..", "..", "docs", "death.svg"))
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`^\$ go run ./examples/death -kills 1
teller  \(pid \d+\) holds the lock, half way through a transfer
auditor \(pid \d+\) waits for the lock
\$ kill -9 \d+
auditor is told after \d+\.\d\d ms:
  .*mutex.lock "ledger": owner died: teller \(pid \d+, slot .*
  accounts \[30 40\]: a repair is due
  accounts \[60 40\]: repaired, and the lock is held again$`), strings.Join(texts(t, string(svg)), "\n"))
}
