package litmus_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/shmsync/shmsync/internal/litmus"
)

const lse, pairs = LSE(true), LSE(false)

// TestModel has litmus tests whose verdicts are known: from the Arm manual, from the literature, and from the mappings
// of compilers.
func TestModel(t *testing.T) {
	zeros := func(r Result) bool { return r["a"] == 0 && r["b"] == 0 }
	stale := func(r Result) bool { return r["a"] == 1 && r["b"] == 0 }
	for _, x := range []struct {
		name    string
		program Program
		result  func(r Result) bool
		allowed bool
	}{
		{"message passing", Program{{STR("x", 1), STR("y", 1)}, {LDR("a", "y"), LDR("b", "x")}}, stale, true},
		{"message passing, stores in order", Program{{STR("x", 1), DMBST, STR("y", 1)}, {LDR("a", "y"), LDR("b", "x")}}, stale, true},
		{"message passing, fences", Program{{STR("x", 1), DMBST, STR("y", 1)}, {LDR("a", "y"), DMBLD, LDR("b", "x")}}, stale, false},
		{"message passing, release and acquire", Program{{STR("x", 1), STLR("y", 1)}, {LDAR("a", "y"), LDR("b", "x")}}, stale, false},
		{"message passing, release and LDAPR", Program{{STR("x", 1), STLR("y", 1)}, {LDAPR("a", "y"), LDR("b", "x")}}, stale, false},
		{"message passing, a release before", Program{{STLR("x", 1), STR("y", 1)}, {LDAR("a", "y"), LDR("b", "x")}}, stale, true},
		{"message passing, an acquire behind", Program{{STR("x", 1), STLR("y", 1)}, {LDR("a", "y"), LDAR("b", "x")}}, stale, true},
		{"store buffers", Program{{STR("x", 1), LDR("a", "y")}, {STR("y", 1), LDR("b", "x")}}, zeros, true},
		{"store buffers, fences", Program{{STR("x", 1), DMB, LDR("a", "y")}, {STR("y", 1), DMB, LDR("b", "x")}}, zeros, false},
		{"store buffers, fences between loads", Program{{STR("x", 1), DMBLD, LDR("a", "y")}, {STR("y", 1), DMBLD, LDR("b", "x")}}, zeros, true},
		{"store buffers, STLR and LDAR", Program{{STLR("x", 1), LDAR("a", "y")}, {STLR("y", 1), LDAR("b", "x")}}, zeros, false},
		{"store buffers, STLR and LDAPR", Program{{STLR("x", 1), LDAPR("a", "y")}, {STLR("y", 1), LDAPR("b", "x")}}, zeros, true},
		{"store buffers, STLR and LDR", Program{{STLR("x", 1), LDR("a", "y")}, {STLR("y", 1), LDR("b", "x")}}, zeros, true},
		{"store buffers, STR and LDAR", Program{{STR("x", 1), LDAR("a", "y")}, {STR("y", 1), LDAR("b", "x")}}, zeros, true},
		{"store buffers, CAS and LDAR", Program{{pairs.CAS("x", 0, 1), LDAR("a", "y")}, {pairs.CAS("y", 0, 1), LDAR("b", "x")}}, zeros, false},
		{"store buffers, CAS and LDAPR", Program{{pairs.CAS("x", 0, 1), LDAPR("a", "y")}, {pairs.CAS("y", 0, 1), LDAPR("b", "x")}}, zeros, true},
		{"store buffers, CAS and LDR", Program{{pairs.CAS("x", 0, 1), LDR("a", "y")}, {pairs.CAS("y", 0, 1), LDR("b", "x")}}, zeros, true},
		{"store buffers, CASAL and LDR", Program{{lse.CAS("x", 0, 1), LDR("a", "y")}, {lse.CAS("y", 0, 1), LDR("b", "x")}}, zeros, false},
		{"load buffers", Program{{LDR("a", "x"), STR("y", 1)}, {LDR("b", "y"), STR("x", 1)}}, func(r Result) bool { return r["a"] == 1 && r["b"] == 1 }, true},
		{"load buffers, STLR", Program{{LDR("a", "x"), STLR("y", 1)}, {LDR("b", "y"), STLR("x", 1)}}, func(r Result) bool { return r["a"] == 1 && r["b"] == 1 }, false},
		{"two writers, two readers", Program{{STR("x", 1)}, {STR("y", 1)}, {LDAR("a", "x"), LDR("b", "y")}, {LDAR("c", "y"), LDR("d", "x")}},
			func(r Result) bool { return r["a"] == 1 && r["b"] == 0 && r["c"] == 1 && r["d"] == 0 }, false},
		{"two writers, two readers, plain", Program{{STR("x", 1)}, {STR("y", 1)}, {LDR("a", "x"), LDR("b", "y")}, {LDR("c", "y"), LDR("d", "x")}},
			func(r Result) bool { return r["a"] == 1 && r["b"] == 0 && r["c"] == 1 && r["d"] == 0 }, true},
		{"a store overtakes a store-exclusive", Program{{pairs.CAS("x", 0, 1), STR("y", 1)}, {LDAR("a", "y"), LDR("b", "x")}}, stale, true},
		{"a store behind CASAL", Program{{lse.CAS("x", 0, 1), STR("y", 1)}, {LDAR("a", "y"), LDR("b", "x")}}, stale, false},
		{"coherence", Program{{STR("x", 1)}, {LDR("a", "x"), LDR("b", "x")}}, stale, false},
		{"a thread reads its store", Program{{STR("x", 1), LDR("a", "x")}}, func(r Result) bool { return r["a"] == 0 }, false},
		{"two additions", Program{{pairs.Add("", "x", 1)}, {pairs.Add("", "x", 1)}}, func(r Result) bool { return r["x"] != 2 }, false},
		{"two additions of LSE", Program{{lse.Add("a", "x", 1)}, {lse.Add("b", "x", 1)}}, func(r Result) bool { return r["a"] == r["b"] || r["x"] != 2 }, false},
		{"one of two CASes", Program{{pairs.CAS("x", 0, 1)}, {pairs.CAS("x", 0, 2)}}, func(Result) bool { return true }, false},
	} {
		require.Equal(t, x.allowed, Allowed(x.program, x.result), x.name)
	}
}
