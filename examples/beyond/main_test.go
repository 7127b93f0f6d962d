//go:build linux

package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

var output = regexp.MustCompile(`^one host:   60 additions by 3 processes, 2 killed with the lock held: none lost; \S+
several:    60 additions by 3 processes, 2 killed with the lock held: none lost; \S+
$`)

// TestBeyond runs the example, which kills workers at random, and checks its output.
func TestBeyond(t *testing.T) {
	program := filepath.Join(t.TempDir(), "beyond")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx := t.Context()
	if end, ok := t.Deadline(); ok { // stop before the time limit of go test, so that the test can report the output
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/5))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, program, "-kills", "2", "-seed", "1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || !output.Match(stdout.Bytes()) {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}
}
