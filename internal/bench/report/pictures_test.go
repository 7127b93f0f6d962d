//go:build linux

package report

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/madeup"
)

var updatePictures = flag.Bool("update", false, "write the pictures of docs/shmbench.md")

// pictureStyle gives a picture file the style that figures have on the page.
const pictureStyle = `<style>svg { background: #fff; } text { font: 12px system-ui, sans-serif; fill: #1b1f24; } .box { fill: #fff; stroke: #d0d7de; }
.box.package { fill: #f6f8fa; stroke: #57606a; } .box.llc { fill: #f6f8fa; } .box.core { stroke: #0072b2; } .box.host { fill: none; stroke: none; }
.border { stroke: #1b1f24; fill: none; } .grid { stroke: #d0d7de; } .range { stroke: #1b1f24; stroke-width: 2; opacity: .7; }</style>`

// madeUpCell returns a cell with three repetitions whose values are near v.
func madeUpCell(subject, unit string, params map[string]string, v float64) *Cell {
	c := &Cell{Subject: subject, Unit: unit, Params: params}
	for _, f := range []float64{0.95, 1, 1.1} {
		c.Reps = append(c.Reps, Repetition{Status: bench.StatusOK, Metrics: map[string]float64{unit: f * v}})
	}
	return c
}

// madeUpPeers draws bars, one of which is far longer than the others.
func madeUpPeers() *figure {
	var cells []*Cell
	for subject, v := range map[string]float64{"shmsync:mutex": 5, "in-process:sync.Mutex": 6, "c:robust": 12, "c:pthread": 9, "go:flock": 800} {
		cells = append(cells, madeUpCell(subject, "p50-ns", nil, v))
	}
	return sideBySide(bench.ScenarioByName("uncontended"), "", cells)
}

// madeUpWakes draws curves of the latency of a wake against the gap before it.
func madeUpWakes() *figure {
	var cells []*Cell
	for i, gap := range []string{"0", "20us", "200us", "2ms", "10ms"} {
		for k, subject := range []string{"shmsync:futex", "c:futex", "go:futex"} {
			v := []float64{400, 9000, 11_000, 16_000, 30_000}[i] * []float64{1.1, 1, 1.3}[k]
			cells = append(cells, madeUpCell(subject, "p50-ns", map[string]string{"gap": gap}, v))
		}
	}
	return againstGap(cells)
}

// TestPicturesOfTheDocuments checks that the pictures in the documents are those that this program draws. They show a
// made-up host and made-up figures.
func TestPicturesOfTheDocuments(t *testing.T) {
	d := syntheticMatrix(t, "nps4", 1, func(a, b, _ int) float64 {
		way := 190.0
		switch {
		case a/2 == b/2:
			way = 24
		case a/4 == b/4:
			way = 92
		}
		noise := rand.New(rand.NewPCG(uint64(a), uint64(b))) // each pair has the same noise in every run
		return way * (1 + 0.06*noise.Float64())
	})
	for name, f := range map[string]*figure{
		"shmbench-topology.svg": topologyFigure(d.Topology), "shmbench-matrix.svg": matrixFigures(d)[0],
		"shmbench-peers.svg": madeUpPeers(), "shmbench-wake.svg": madeUpWakes(),
	} {
		head, rest, ok := strings.Cut(string(f.SVG), ">")
		require.True(t, ok)
		text := head + ">" + pictureStyle + rest + "\n"
		require.NoError(t, madeup.CheckPage(text))
		file := filepath.Join("..", "..", "..", "docs", name)
		if *updatePictures {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		}
		require.True(t, text == string(mustRead(t, file)), "go test ./internal/bench/report -run PicturesOfTheDocuments -update draws it again")
	}
}
