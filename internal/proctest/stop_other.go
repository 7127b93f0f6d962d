//go:build !linux

package proctest

import "testing"

func (p *Proc) stop(t testing.TB)      { t.Helper(); t.Fatal("proctest: Stop needs Linux") }
func (p *Proc) cont(t testing.TB)      { t.Helper(); t.Fatal("proctest: Cont needs Linux") }
func (p *Proc) awaitStop(t testing.TB) { t.Helper(); t.Fatal("proctest: AwaitStop needs Linux") }

func (p *Proc) resume() {}

func (p *Proc) processState() string { return "unknown" }

func (p *Proc) keepLocks(t testing.TB) { t.Helper() }
