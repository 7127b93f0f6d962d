//go:build linux

package cinterop

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// This file is the Go side of testdata/agent_synchronized.h, without the verb tear.

func init() {
	verbs["sync"] = func(x *goAgent, o order) (uint64, error) {
		return synchronizedVerb(x, o, func(v *[16]uint64) []uint64 { return v[:] })
	}
	verbs["wide"] = func(x *goAgent, o order) (uint64, error) {
		return synchronizedVerb(x, o, func(v *[8192]uint64) []uint64 { return v[:] })
	}
}

// updatesBegun maps an object to a function that commits the Update which the verb begin has started.
var updatesBegun sync.Map

var errGivenUp = errors.New("given up")

func equalWords(v []uint64) bool {
	for _, w := range v {
		if w != v[0] {
			return false
		}
	}
	return true
}

func synchronizedVerb[T any](x *goAgent, o order, words func(*T) []uint64) (n uint64, err error) {
	verb := o.verb[strings.Index(o.verb, ".")+1:]
	var value T
	set := func(v *T, to uint64) {
		all := words(v)
		for i := range all {
			all[i] = to
		}
	}
	if verb == "open" {
		set(&value, uint64(o.arg(0)))
	}
	s, err := prims.OpenSynchronized(x.a, o.name, value, nil)
	if err != nil {
		return 0, err
	}
	change := func(k uint64, file *os.File, then func() error) func(*T) error {
		return func(v *T) error {
			all := words(v)
			if !equalWords(all) {
				return syscall.EILSEQ
			}
			to := all[0] + k
			if file != nil {
				b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(all))), 8*len(all))
				if _, err := file.ReadAt(b, 0); err != nil {
					return err
				}
			}
			set(v, to)
			return then()
		}
	}
	done := func() error { return nil }
	switch verb {
	case "open":
		return uint64(s.Offset()), nil
	case "store":
		set(&value, uint64(o.arg(0)))
		s.Store(value)
		return 0, nil
	case "load":
		value = s.Load()
		if !equalWords(words(&value)) {
			return 0, syscall.EILSEQ
		}
		return words(&value)[0], nil
	case "watch":
		last := uint64(0)
		for range o.arg(0) {
			s.LoadInto(&value)
			if all := words(&value); !equalWords(all) || all[0] < last {
				return 0, syscall.EILSEQ
			}
			last = words(&value)[0]
		}
		return 0, nil
	case "commits":
		return s.State().Commits, nil
	case "try":
		return 0, s.ViewContext(o.ctx(0), func(*T) error { return nil })
	case "add":
		return 0, s.Update(change(uint64(o.arg(0)), nil, done))
	case "fail":
		if err := s.Update(change(uint64(o.arg(0)), nil, func() error { return errGivenUp })); err != errGivenUp {
			return 0, err
		}
		return 0, nil
	case "begin", "take":
		ctx, k := o.ctx(0), uint64(0)
		if verb == "begin" {
			ctx, k = context.Background(), uint64(o.arg(0))
		}
		in, out, ended := make(chan error), make(chan bool), make(chan error)
		updatesBegun.Store(o.name, func() error {
			out <- true
			return <-ended
		})
		go func() {
			err := s.UpdateContext(ctx, change(k, nil, func() error {
				in <- nil
				<-out
				return nil
			}))
			select {
			case in <- err:
			case ended <- err:
			}
		}()
		return 0, <-in
	case "commit":
		commit, ok := updatesBegun.LoadAndDelete(o.name)
		if !ok {
			return 0, syscall.EPERM
		}
		return 0, commit.(func() error)()
	case "churn":
		var file *os.File
		if len(o.args) > 0 {
			if file, err = os.Open(o.args[0]); err != nil {
				return 0, err
			}
		}
		for k := 0; err == nil; k++ {
			err = s.Update(change(1, file, func() error {
				if k%16 == 5 {
					return errGivenUp
				}
				return nil
			}))
			if err == errGivenUp {
				err = nil
			}
		}
		return 0, err
	}
	return 0, errors.Join(syscall.ENOSYS, shmsync.ErrNotSupported)
}

// groupSynchronized changes the value, abandons some changes, and loads.
func (x *goAgent) groupSynchronized(name string, turn int) error {
	s, err := prims.OpenSynchronized(x.a, name, [16]uint64{}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.Update(func(v *[16]uint64) error {
		if !equalWords(v[:]) {
			return syscall.EILSEQ
		}
		for i := range v {
			v[i]++
		}
		if turn%5 == 3 {
			return errGivenUp
		}
		return nil
	})
	if v := s.Load(); !equalWords(v[:]) {
		return syscall.EILSEQ
	}
	return but(err, errGivenUp)
}
