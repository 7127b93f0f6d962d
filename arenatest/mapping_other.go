//go:build !linux

package arenatest

import (
	"os"

	"github.com/shmsync/shmsync"
)

const sharesMappings = false

type mapping struct{ bytes []byte }

func newMapping(*os.File, int64) (*mapping, error) { return nil, shmsync.ErrNotSupported }

func (m *mapping) makePrivate(*os.File) error { return shmsync.ErrNotSupported }

func (m *mapping) retire() error { return nil }
