//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// withoutDevShm runs this program where there is no /dev/shm.
func withoutDevShm(t *testing.T, args ...string) (out string) {
	t.Helper()
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespace: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	const script = `set -e; touch "$0/null"; mount --bind /dev/null "$0/null"; mount --rbind "$0" /dev; test ! -e /dev/shm; exec "$@"`
	cmd := exec.Command("unshare", append([]string{"-rm", "sh", "-c", script, t.TempDir(), self}, args...)...)
	cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1")
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, string(b))
	return string(b)
}

// Measuring needs no /dev/shm, and the proof that does says so.
func TestWithoutDevShm(t *testing.T) {
	out := withoutDevShm(t, "selftest", "--only", "arena/named,exclusion")
	require.Regexp(t, `RESULT skip arena/named: .*/dev/shm`, out)
	require.Contains(t, out, "RESULT ok exclusion")
	out = withoutDevShm(t, "uncontended", "--prim=shmsync:mutex", "--time=5ms", "--count=1", "--cc=none")
	require.Contains(t, out, "mutex")
}

// Without a compiler, or with one that does not work, the peers in C are skipped, with
// the reason; the others run.
func TestWithoutCompiler(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "cc")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho no such header >&2\nexit 1\n"), 0o700))
	for cc, reason := range map[string]string{"none": "no C compiler", "/no/such/cc": "no C compiler", broken: "exit status 1"} {
		code, out, errs := shmbench(t, "uncontended", "--prim=c:futex,c:mq,go:flock", "--time=5ms", "--count=1", "--format=json", "--cc="+cc)
		require.Equal(t, exitOK, code, errs)
		require.Contains(t, errs, reason)
		for _, c := range parseDocument(t, out).Cells {
			if c.Subject == "go:flock" {
				require.Equal(t, statusOK, c.Status)
				continue
			}
			require.Equal(t, statusSkipped, c.Status)
			require.Contains(t, c.Reason, reason)
		}
	}
}

// A bad result file among good ones is refused, and what is there is not overwritten.
func TestReportOfBadFiles(t *testing.T) {
	good := keepMadeUp(t, nil)
	whole, err := os.ReadFile(good)
	require.NoError(t, err)
	page := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(page, []byte("before"), 0o600))
	for want, content := range map[string][]byte{
		"cut short":  whole[:len(whole)-20],
		"has schema": []byte(`{"schema": "shmbench/99", "cells": [{}]}`),
		"no result":  []byte("PK\x03\x04"),
	} {
		bad := filepath.Join(t.TempDir(), "bad.json")
		require.NoError(t, os.WriteFile(bad, content, 0o600))
		code, out, errs := shmbench(t, "report", good, bad, page)
		require.Equal(t, exitUsage, code, want)
		require.Empty(t, out)
		require.Contains(t, errs, want)
		require.Contains(t, errs, bad)
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Equal(t, "before", string(b))
	}
	// Two good ones are one page.
	more := keepMadeUp(t, func(d *document) { d.Cells = d.Cells[:1]; d.Cells[0].Subject = "go:other"; d.Cells[0].Key += "x" })
	code, out, errs := shmbench(t, "report", good, more)
	require.Zero(t, code, errs)
	require.Contains(t, out, "<td>go:other</td>")
	require.Contains(t, out, "<td>shmsync:mutex</td>")
}
