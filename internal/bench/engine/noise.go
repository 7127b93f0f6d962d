//go:build linux

package engine

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/bench/child"
)

// noise starts busy loops on each CPU. They run only while no other program wants to run there.
func (r *run) noise() error {
	self, err := child.Self()
	if err != nil {
		return err
	}
	for range r.cell.Noise {
		for _, cpu := range r.cpus {
			if err := r.launch(append(self, "worker", "--idle", "--busy", fmt.Sprint(cpu))); err != nil {
				return err
			}
		}
	}
	return nil
}
