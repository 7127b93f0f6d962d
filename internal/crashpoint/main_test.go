package crashpoint

import (
	"testing"

	"github.com/shmsync/shmsync/internal/proctest"
)

var (
	_ = Register("test.point.one")
	_ = Register("test.point.two")
)

func TestMain(m *testing.M) { proctest.Main(m) }
