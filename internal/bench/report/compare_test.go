//go:build linux

package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
)

// madeUpDocument returns the JSON form of a document with made-up results.
var madeUpDocument = sync.OnceValues(func() ([]byte, error) {
	d, err := NewDocument(madeUp(new(testing.T)))
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
})

// keepMadeUp writes the made-up document to a result file, and returns the name of the file. The function change may
// change the document before; it may be nil.
func keepMadeUp(t *testing.T, change func(*Document)) string {
	t.Helper()
	b, err := madeUpDocument()
	require.NoError(t, err)
	if change != nil {
		var d Document
		require.NoError(t, json.Unmarshal(b, &d))
		change(&d)
		b, err = json.Marshal(d)
		require.NoError(t, err)
	}
	name := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, os.WriteFile(name, b, 0o600))
	return name
}

// scale sets the main metric of a cell to f times its made-up value, with little noise.
func scale(d *Document, cell int, f float64) {
	c := &d.Cells[cell]
	for i := range c.Reps {
		if c.Reps[i].Status == bench.StatusOK {
			c.Reps[i].Metrics[c.Unit] = f * (1000 + float64(i))
		}
	}
}
