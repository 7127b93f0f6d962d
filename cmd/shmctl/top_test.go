//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sentences are wrapped, tables are cut, and nothing is wider or longer than the screen.
func TestFit(t *testing.T) {
	text := "abcdefgh\nDEADLOCK\n\nOBJECT  TYPE\nledger  Mutex\n"
	require.Equal(t, []string{"abcde", "fgh", "DEADL", "OCK", "", "OBJEC", "ledge"}, fit(text, 5, 100))
	require.Equal(t, []string{"abcdefgh", "DEADLOCK"}, fit(text, 80, 3))
	require.Equal(t, strings.Split(strings.TrimSuffix(text, "\n"), "\n"), fit(text, 80, 24))
	require.Len(t, fit(text, 1, 1), 1)
	require.Equal(t, []string{"éß", "ü"}, fit("éßü", 2, 9))
}

// A line is broken between words, and within a word only if the word is longer than a line.
func TestWrap(t *testing.T) {
	require.Equal(t, []string{"the lock of", "  alice is held"}, wrap("the lock of alice is held", 15, "  "))
	require.Equal(t, []string{"the lock"}, wrap("the lock", 8, "  "))
	require.Equal(t, []string{"the lock"}, wrap("the lock", 0, "  "))
	require.Equal(t, []string{"abcdefgh", "  ijklmn", "  op qr"}, wrap("abcdefghijklmnop qr", 8, "  "))
	require.Equal(t, []string{"  → the", "    lock", "    is", "    held"}, wrap("  → the lock is held", 10, "    "))
}
