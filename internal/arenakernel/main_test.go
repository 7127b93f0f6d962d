//go:build linux

package arenakernel

import (
	"testing"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }
