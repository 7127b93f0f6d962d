package topology

import (
	"slices"
)

// placeNodes gives each CPU its node. It repairs reports of the host that contradict each other. Nodes with the same
// CPUs become one node. A CPU that is in several nodes stays only in the smallest of them. A CPU that is in no node
// gets a node of its package.
func (r *reader) placeNodes(f *facts) {
	r.t.Nodes = f.nodes
	r.onlineOnly(f)
	r.dropTwins()
	r.distances()
	owner := map[int]int{} // maps a CPU to the index of its node
	twice := false
	for i, n := range r.t.Nodes {
		for _, id := range n.CPUs {
			j, placed := owner[id]
			if !placed || len(n.CPUs) < len(r.t.Nodes[j].CPUs) {
				owner[id] = i
			}
			twice = twice || placed
		}
	}
	if twice {
		r.repair("of nodes", "some CPUs are in several nodes: each is taken for one of the smallest")
	}
	byPackage := map[int]int{}
	first := -1
	for _, c := range f.cpus {
		if i, ok := owner[c.ID]; ok {
			if first < 0 {
				first = i
			}
			if _, known := byPackage[c.Package]; !known {
				byPackage[c.Package] = i
			}
		}
	}
	for i := range r.t.Nodes {
		r.t.Nodes[i].CPUs = nil
	}
	for k := range f.cpus {
		c := &f.cpus[k]
		i, ok := owner[c.ID]
		if !ok {
			if i, ok = byPackage[c.Package]; !ok {
				i = max(first, 0)
			}
			r.repair("such CPUs", "CPU %d is in no node: it is taken for one of node %d", c.ID, r.t.Nodes[i].ID)
		}
		c.Node = r.t.Nodes[i].ID
		r.t.Nodes[i].CPUs = append(r.t.Nodes[i].CPUs, c.ID)
	}
}

// onlineOnly removes CPUs that are not online from the nodes.
func (r *reader) onlineOnly(f *facts) {
	for i := range r.t.Nodes {
		n := &r.t.Nodes[i]
		n.CPUs = slices.DeleteFunc(n.CPUs, func(id int) bool {
			gone := f.at(id) == nil
			if gone && !slices.Contains(r.t.Offline, id) {
				r.repair("such CPUs", "node %d lists CPU %d, which is not online: it is left out", n.ID, id)
			}
			return gone
		})
	}
}

// dropTwins removes a node if an earlier node lists the same CPUs.
func (r *reader) dropTwins() {
	for i := 0; i < len(r.t.Nodes); i++ {
		for j := len(r.t.Nodes) - 1; j > i; j-- {
			a, b := r.t.Nodes[i], r.t.Nodes[j]
			if len(a.CPUs) == 0 || !slices.Equal(a.CPUs, b.CPUs) {
				continue
			}
			r.repair("such nodes", "nodes %d and %d list the same CPUs: they are taken for one", a.ID, b.ID)
			for k := range r.t.Nodes {
				if n := &r.t.Nodes[k]; len(n.Distance) == len(r.t.Nodes) {
					n.Distance = slices.Delete(slices.Clone(n.Distance), j, j+1)
				}
			}
			r.t.Nodes = slices.Delete(r.t.Nodes, j, j+1)
		}
	}
}

// distances removes the distances of a node if their number differs from the number of nodes.
func (r *reader) distances() {
	for i := range r.t.Nodes {
		n := &r.t.Nodes[i]
		if n.Distance != nil && len(n.Distance) != len(r.t.Nodes) {
			r.repair("of distances", "node %d has %d distances, and %d nodes are online: they are not used", n.ID, len(n.Distance), len(r.t.Nodes))
			n.Distance = nil
		}
	}
}
