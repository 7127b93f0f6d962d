//go:build linux

package cinterop

import (
	"io"
	"os"
	"syscall"
)

// This file is the Go side of testdata/agent_gone.h, without the verb gone.fork.

func init() { verbs["gone"] = (*goAgent).gone }

const gonePage = 4096

func (x *goAgent) gone(o order) (n uint64, err error) {
	if o.verb == "gone.delete" {
		return 0, x.a.Delete(o.name)
	}
	bytes := uint64(o.arg(0))
	b, err := x.a.Block(o.name, bytes+8)
	if err != nil {
		return 0, err
	}
	rounds := roundsOf(b)
	switch o.verb {
	case "gone.read":
		f, err := os.Open(o.args[1])
		if err != nil {
			return 0, err
		}
		for {
			if _, err := f.ReadAt(b[:bytes], 0); err != nil && err != io.EOF {
				return 0, err
			}
			rounds.Add(1)
		}
	case "gone.rounds":
		return rounds.Load(), nil
	case "gone.stamp":
		for i := len(b) - 8; i >= gonePage; i -= gonePage {
			b[i-1] = 0
		}
		return 0, nil
	case "gone.check":
		for i := gonePage; i <= len(b)-8; i += gonePage {
			n += yes(b[i-1] != 0)
		}
		return n, nil
	}
	return 0, syscall.ENOSYS
}
