//go:build linux && amd64

package stepkill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// purse is the value of a Synchronized. Each Update sets its elements, one after the other, to one number.
type purse [5]int64

func (p *purse) whole() error {
	for _, n := range p {
		if n != p[0] {
			return fmt.Errorf("an Update was made in part: %v", *p)
		}
	}
	return nil
}

func (p *purse) add() {
	for i := range p {
		p[i]++
	}
}

func init() {
	purses := func(f func(s *prims.Synchronized[purse], p *part)) func(a *arena.Arena) (part, error) {
		return func(a *arena.Arena) (part, error) {
			s, err := prims.OpenSynchronized(a, "s", purse{}, &prims.SynchronizedOptions{Spin: -1})
			if err != nil {
				return part{}, err
			}
			loads := func() error {
				v := s.Load()
				return v.whole()
			}
			update := func(ctx context.Context) error {
				if err := loads(); err != nil {
					return err
				}
				if err := s.UpdateContext(ctx, func(v *purse) error {
					if err := v.whole(); err != nil {
						return err
					}
					v.add()
					return v.whole()
				}); err != nil {
					return err
				}
				return loads()
			}
			p := part{wait: waits(update), use: waits(update), close: s.Close}
			f(s, &p)
			return p, nil
		}
	}
	add := func(v *purse) error {
		v.add()
		return nil
	}
	errGivenUp := errors.New("given up")
	each("synchronized/update", purses(func(s *prims.Synchronized[purse], p *part) {
		p.op = func() { s.Update(add) }
	}), 0, 3)
	each("synchronized/update, waits", purses(func(s *prims.Synchronized[purse], p *part) {
		in, out := make(chan bool), make(chan bool)
		p.hold = func() {
			go s.View(func(*purse) error {
				in <- true
				<-out
				return nil
			})
			<-in
		}
		p.free = func() { out <- true }
		p.op = func() { s.Update(add) }
	}), 0, 2)
	each("synchronized/update that fails", purses(func(s *prims.Synchronized[purse], p *part) {
		p.op = func() {
			s.Update(func(v *purse) error {
				v.add()
				return errGivenUp
			})
		}
	}), 0)
	for name, does := range map[string]string{"synchronized/update": "commit", "synchronized/update that fails": "abort"} {
		i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })
		scenes[i].newcomer = "synchronized"
		addSceneInC(scenes[i], "synchronized", does)
	}
	each("synchronized/store", purses(func(s *prims.Synchronized[purse], p *part) {
		p.op = func() { s.Store(purse{7, 7, 7, 7, 7}) }
	}), 0)
	each("synchronized/view", purses(func(s *prims.Synchronized[purse], p *part) {
		p.op = func() { s.View(func(v *purse) error { return v.whole() }) }
	}), 0, 2)
	each("synchronized/load", purses(func(s *prims.Synchronized[purse], p *part) { p.op = func() { s.Load() } }), 0)
}
