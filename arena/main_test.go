//go:build linux

package arena

import (
	"testing"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }
