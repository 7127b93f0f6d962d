//go:build linux

package report

import (
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/bars"
	"github.com/shmsync/shmsync/internal/bench/stats"
)

// fieldsOf collects the names of the fields that a value of type t has in JSON, and of the fields of all values in it.
func fieldsOf(t reflect.Type, seen map[reflect.Type]bool, to map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		to[name] = true
		fieldsOf(f.Type, seen, to)
	}
}

// The documentation lists exactly the fields that a result file has.
func TestResultFilesAreDocumented(t *testing.T) {
	fields := map[string]bool{}
	fieldsOf(reflect.TypeFor[Document](), map[reflect.Type]bool{}, fields)
	require.Greater(t, len(fields), 60)
	text := string(mustRead(t, filepath.Join("..", "..", "..", "docs", "shmbench-results.md")))
	require.Contains(t, text, "`"+Schema+"`")
	require.Contains(t, text, "`"+TopologySchema+"`")
	for name := range fields {
		require.Contains(t, text, "`"+name+"`", "docs/shmbench-results.md")
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			if name[1] == "n" || name[1] == "jain" {
				continue // metrics
			}
			require.True(t, fields[name[1]], "there is no field %s", name[1])
		}
	}
	for _, status := range []string{bench.StatusOK, bench.StatusSkipped, bench.StatusHung, bench.StatusCrashed, bench.StatusViolation} {
		require.Contains(t, text, "`"+status+"`")
	}
	for _, verdict := range []string{adviceDo, adviceAsIs, adviceNone, adviceUnknown, adviceWithheld, bars.VerdictPass, bars.VerdictFail, bars.VerdictOpen, bars.VerdictPending, bars.VerdictShown, stats.KindRank, stats.KindPaired, stats.KindBootstrap, stats.KindRange} {
		require.Contains(t, text, "`"+verdict+"`")
	}
}
