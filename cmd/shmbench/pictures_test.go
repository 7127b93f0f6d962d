//go:build linux

package main

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updatePictures = flag.Bool("update", false, "write the pictures of docs/shmbench.md")

// pictureStyle is what the page says of figures, for a picture on its own.
const pictureStyle = `<style>svg { background: #fff; } text { font: 12px system-ui, sans-serif; fill: #1b1f24; } .box { fill: #fff; stroke: #d0d7de; }
.box.package { fill: #f6f8fa; stroke: #57606a; } .box.llc { fill: #f6f8fa; } .box.core { stroke: #0072b2; } .box.host { fill: none; stroke: none; }
.border { stroke: #1b1f24; fill: none; }</style>`

// The pictures of the documents are what the program draws: a made-up host, and made-up
// figures of it.
func TestPicturesOfTheDocuments(t *testing.T) {
	d := syntheticMatrix(t, "nps4", 1, func(a, b, _ int) float64 {
		way := 190.0
		switch {
		case a/2 == b/2:
			way = 24
		case a/4 == b/4:
			way = 92
		}
		noise := rand.New(rand.NewPCG(uint64(a), uint64(b))) // of its own: the order of pairs is nobody's
		return way * (1 + 0.06*noise.Float64())
	})
	for name, f := range map[string]*figure{"shmbench-topology.svg": topologyFigure(d.Topology), "shmbench-matrix.svg": matrixFigures(d)[0]} {
		head, rest, ok := strings.Cut(string(f.SVG), ">")
		require.True(t, ok)
		text := head + ">" + pictureStyle + rest + "\n"
		requireWellFormed(t, text)
		file := filepath.Join("..", "..", "docs", name)
		if *updatePictures {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		}
		require.True(t, text == string(mustRead(t, file)), "go test ./cmd/shmbench -run PicturesOfTheDocuments -update draws it again")
	}
}
