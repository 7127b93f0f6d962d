//go:build linux

package bench

import "github.com/shmsync/shmsync/internal/topology"

// Placements of a cell's processes.
const (
	PlaceSame  = "same"  // all on one CPU
	PlaceCross = "cross" // one CPU each, in turn
	PlaceAny   = "any"   // unpinned
)

// Placements by what CPUs share, a CPU for each process in turn: the classes of
// topology, and whole nodes, and near and far from each other.
const (
	PlaceSMT          = string(topology.SMT)
	PlaceLLC          = string(topology.SameLLC)
	PlaceOtherLLC     = string(topology.OtherLLC)
	PlacePackage      = string(topology.SamePackage)
	PlaceCrossPackage = string(topology.CrossPackage)
	PlaceNode         = "node"   // the cores of one node
	PlacePack         = "pack"   // as near to each other as can be
	PlaceSpread       = "spread" // as far from each other as can be
)

// PlaceNames are the placements that --place takes, beside CPUs as in 0+1.
var PlaceNames = []string{
	PlaceSame, PlaceSMT, PlaceLLC, PlaceNode, PlaceOtherLLC, PlacePackage, PlaceCrossPackage, PlaceCross, PlacePack, PlaceSpread, PlaceAny,
}
