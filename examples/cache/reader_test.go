//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/examples/internal/ccbuild"
	"github.com/shmsync/shmsync/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func init() {
	proctest.Register("cache/writer", func(c *proctest.Child) {
		var q struct{ Name, Step, Key string }
		c.Params(&q)
		a, err := arena.Attach(q.Name, nil)
		if err != nil {
			c.Fatal(err)
		}
		cache, err := openCache(a)
		if err != nil {
			c.Fatal(err)
		}
		for i := 0; ; i++ {
			cache.half = func(step string) {
				if step == q.Step {
					c.Say(i)
					c.Await() // until the kill
				}
			}
			// The first put replaces the page with the given key. Later puts add new pages, so that the table grows, and other
			// pages are evicted.
			key := q.Key
			if i > 0 {
				key = fmt.Sprintf("new page %d", i)
			}
			if err := cache.put(key, page(key, 8), most); err != nil {
				c.Fatal(err)
			}
		}
	})
}

// TestCacheReader checks that a C program reads the pages that a Go program has put, even after a Go program was killed
// in the middle of a put.
func TestCacheReader(t *testing.T) {
	if _, err := ccbuild.Compiler(); err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_CC"), err)
		proctest.Skip(t, fmt.Sprintf("needs a C compiler: %v", err), "cache/writer")
	}
	dir := t.TempDir()
	reader, name := filepath.Join(dir, "reader"), filepath.Join(dir, "arena")
	require.NoError(t, ccbuild.Build("examples/cache/reader/reader.c", reader))
	a, err := arena.Create(name, &arena.Options{Size: 4 << 20})
	require.NoError(t, err)
	defer a.Close()
	c, err := openCache(a)
	require.NoError(t, err)
	read := func(key string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), proctest.Scale(proctest.DefaultTimeout))
		defer cancel()
		out, err := exec.CommandContext(ctx, reader, name, key).Output()
		return strings.TrimSuffix(string(out), "\n"), err
	}

	const pages = 11 // more than a table of 8 slots can have, so the table grows
	for i := range pages {
		key := fmt.Sprintf("page %d", i)
		require.NoError(t, c.put(key, page(key, i), most))
	}
	for i := range pages {
		key := fmt.Sprintf("page %d", i)
		got, err := read(key)
		require.NoError(t, err)
		require.Equal(t, string(page(key, i)), got)
	}
	_, err = read("no page")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, "reader: no page is not in the cache\n", string(exit.Stderr))

	for _, step := range []string{"put", "grow", "evict"} {
		t.Run(step, func(t *testing.T) {
			key := "page 5"
			before := c.get(key)
			w := proctest.Start(t, "cache/writer", proctest.Params(map[string]string{"Name": name, "Step": step, "Key": key}))
			var puts int // completed puts
			w.Recv(t, &puts)
			w.Kill(t)
			if puts > 0 {
				before = page(key, 8)
			}
			got, err := read(key) // the C program first undoes the unfinished put of the dead process
			require.NoError(t, err)
			require.Equal(t, string(before), got)
			check(c)
			_, err = read(fmt.Sprintf("new page %d", puts))
			require.True(t, errors.As(err, &exit), "the put that was killed must have no effect: %v", err)
		})
	}
}
