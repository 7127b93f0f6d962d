package arena_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// The text of a FieldChange is a statement, which a program can write to its log unchanged.
func TestFieldChangeReadsAsAStatement(t *testing.T) {
	for text, c := range map[string]arena.FieldChange{
		"Misses is new: uint64 at 8":                   {Field: "Misses", New: "uint64 at 8"},
		"Day is gone: int64 at 16":                     {Field: "Day", Old: "int64 at 16"},
		"Last.Day was int64 at 16 and is int32 at 16":  {Field: "Last.Day", Old: "int64 at 16", New: "int32 at 16"},
		"the value was int64 at 0 and is float64 at 0": {Old: "int64 at 0", New: "float64 at 0"},
	} {
		require.Equal(t, text, c.String())
	}
}
