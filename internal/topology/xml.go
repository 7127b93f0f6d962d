package topology

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// xmlObject is an object in a file of lstopo. Version 1 of the format has Socket and Cache; later versions have
// Package and L1Cache to L5Cache instead. In version 1, nodes contain CPUs; in later versions, nodes are beside CPUs.
type xmlObject struct {
	Type     string         `xml:"type,attr"`
	OS       *int           `xml:"os_index,attr"`
	CPUs     string         `xml:"cpuset,attr"`
	Online   string         `xml:"online_cpuset,attr"`
	Complete string         `xml:"complete_cpuset,attr"`
	Allowed  string         `xml:"allowed_cpuset,attr"`
	Nodes    string         `xml:"allowed_nodeset,attr"`
	Local    int64          `xml:"local_memory,attr"`
	Size     int64          `xml:"cache_size,attr"`
	Depth    int            `xml:"depth,attr"`
	Cache    string         `xml:"cache_type,attr"`
	Info     []xmlInfo      `xml:"info"`
	Objects  []xmlObject    `xml:"object"`
	Old      []xmlDistances `xml:"distances"` // version 1
}

type xmlInfo struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type xmlDistances struct {
	Type    string   `xml:"type,attr"`
	Name    string   `xml:"name,attr"`
	Kind    int      `xml:"kind,attr"`
	Count   int      `xml:"nbobjs,attr"`
	Base    float64  `xml:"latency_base,attr"`
	Indexes []string `xml:"indexes"`
	Values  []string `xml:"u64values"`
	Latency []struct {
		Value float64 `xml:"value,attr"`
	} `xml:"latency"`
}

type xmlTopology struct {
	Objects   []xmlObject    `xml:"object"`
	Distances []xmlDistances `xml:"distances2"`
	Kinds     []struct {
		CPUs string    `xml:"cpuset,attr"`
		Info []xmlInfo `xml:"info"`
	} `xml:"cpukind"`
}

// maxXML is the largest number of bytes that are read from a file.
const maxXML = 64 << 20

// ReadXML reads a topology that lstopo has written as XML.
func ReadXML(from io.Reader) (*Topology, error) {
	var doc xmlTopology
	d := xml.NewDecoder(io.LimitReader(from, maxXML))
	d.Strict = false
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("no file of lstopo: %w", err)
	}
	if len(doc.Objects) == 0 {
		return nil, errors.New("no file of lstopo: it has no object")
	}
	r := &reader{kept: map[string]string{}, t: new(Topology), repairs: map[string]*repairs{}}
	x := &xmlReader{reader: r, facts: &facts{}, root: &doc.Objects[0]}
	x.walk(x.root, cpuFacts{CPU: CPU{Package: -1}}, x.root)
	slices.SortFunc(x.facts.cpus, func(a, b cpuFacts) int { return a.ID - b.ID })
	x.facts.cpus = slices.CompactFunc(x.facts.cpus, func(a, b cpuFacts) bool { return a.ID == b.ID })
	if len(x.facts.cpus) == 0 {
		return nil, errNoCPU
	}
	x.nodes(&doc)
	x.kinds(&doc)
	r.assemble(x.facts)
	r.t.Limits.CPUs, r.t.Limits.Nodes = x.within(x.root.Allowed, r.t.IDs()), x.within(x.root.Nodes, r.t.NodeIDs())
	for _, i := range x.infos {
		switch i.Name {
		case "CPUModel":
			if r.t.Model == "" {
				r.t.Model = i.Value
			}
		case "OSRelease":
			r.t.Kernel = i.Value
		}
	}
	r.writeNotes()
	return r.t, nil
}

type xmlReader struct {
	*reader
	*facts
	root  *xmlObject
	infos []xmlInfo
}

// mask reads a set of numbers in the form of lstopo, which is a list of hexadecimal words with the prefix 0x. If a set
// begins with 0xf...f, it also contains all higher numbers, which mask ignores.
func (x *xmlReader) mask(text string) []int {
	var words []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimPrefix(strings.TrimSpace(word), "0x")
		if strings.Contains(word, "...") {
			continue
		}
		if word == "" {
			word = "0"
		}
		words = append(words, word)
	}
	list, err := ParseMask(strings.Join(words, ","))
	if err != nil && text != "" {
		x.repair("of sets", "%v: it is not used", err)
	}
	return list
}

// within returns those members of a set that are also in the list all. If there are none, it returns all.
func (x *xmlReader) within(set string, all []int) []int {
	ids := x.mask(set)
	list := slices.DeleteFunc(slices.Clone(all), func(id int) bool { return !slices.Contains(ids, id) })
	if len(list) == 0 {
		return all
	}
	return list
}

// walk collects the CPUs and nodes below an object. The parameter c has what is known about these CPUs. The parameter
// around is the nearest enclosing object that lists its CPUs.
func (x *xmlReader) walk(o *xmlObject, c cpuFacts, around *xmlObject) {
	x.infos = append(x.infos, o.Info...)
	if o.CPUs != "" && o.Type != "NUMANode" {
		around = o
	}
	index := -1
	if o.OS != nil {
		index = *o.OS
	}
	kind := o.Type
	if kind == "Cache" {
		kind = fmt.Sprintf("L%dCache", o.Depth)
	}
	switch {
	case kind == "Package" || kind == "Socket":
		c.Package, c.socket = index, x.mask(o.CPUs)
	case kind == "Die":
		c.Die = max(index, 0)
	case kind == "Core":
		c.core = x.mask(o.CPUs)
	case len(kind) == len("L2Cache") && kind[0] == 'L' && strings.HasSuffix(kind, "Cache") && o.Cache != "2":
		level, _ := strconv.Atoi(kind[1:2])
		c.caches = append(slices.Clone(c.caches), cacheFacts{level: level, bytes: o.Size, cpus: x.mask(o.CPUs)})
	case kind == "NUMANode":
		n := Node{ID: max(index, 0), Bytes: o.Local, Free: o.Local, CPUs: x.mask(o.CPUs)}
		if o.CPUs == "" {
			n.CPUs = x.mask(around.CPUs)
		}
		x.facts.nodes = append(x.facts.nodes, n)
	case kind == "PU" && index >= 0 && index < maxID:
		c.ID = index
		switch {
		case x.root.Online != "" && !slices.Contains(x.mask(x.root.Online), index):
			x.t.Offline = append(x.t.Offline, index)
		default:
			if c.core == nil {
				c.core = []int{index}
			}
			x.facts.cpus = append(x.facts.cpus, c)
		}
	}
	for i := range o.Objects {
		x.walk(&o.Objects[i], c, around)
	}
}

// nodes sorts the NUMA nodes by number and adds their distances. If the file has no node, it adds one with all CPUs.
func (x *xmlReader) nodes(doc *xmlTopology) {
	nodes := &x.facts.nodes
	slices.SortFunc(*nodes, func(a, b Node) int { return a.ID - b.ID })
	*nodes = slices.CompactFunc(*nodes, func(a, b Node) bool { return a.ID == b.ID })
	if len(*nodes) == 0 {
		x.note("the file names no NUMA node: all is taken for one")
		*nodes = []Node{{CPUs: x.facts.ids(), Bytes: x.root.Local, Distance: []int{10}}}
		return
	}
	if len(*nodes) == 1 {
		(*nodes)[0].Distance = []int{10}
	}
	// For a node without CPUs, the file lists the CPUs of the object that contains the node. These CPUs belong to
	// other nodes, so take them away from this node.
	for i := range *nodes {
		n := &(*nodes)[i]
		for j := range *nodes {
			if o := (*nodes)[j]; j < i && len(o.CPUs) > 0 && slices.Equal(o.CPUs, n.CPUs) {
				n.CPUs = nil
			}
		}
	}
	for _, d := range append(doc.Distances, x.root.Old...) {
		x.distances(d)
	}
}

// distances sets the distances of the nodes from a matrix. It ignores the matrix unless it has a row and a column for
// each node.
func (x *xmlReader) distances(d xmlDistances) {
	const fromHardware, latency = 1, 4 // bits of kind
	nodes := x.facts.nodes
	var ids []int
	var values []float64
	if len(d.Latency) > 0 {
		for _, n := range nodes {
			ids = append(ids, n.ID)
		}
		for _, v := range d.Latency {
			values = append(values, v.Value*max(d.Base, 1))
		}
	} else if d.Type == "NUMANode" && (d.Name == "NUMALatency" || d.Name == "" && d.Kind&latency != 0) {
		for _, field := range strings.Fields(strings.Join(d.Indexes, " ")) {
			v, _ := strconv.Atoi(field)
			ids = append(ids, v)
		}
		for _, field := range strings.Fields(strings.Join(d.Values, " ")) {
			v, _ := strconv.ParseFloat(field, 64)
			values = append(values, v)
		}
	}
	if len(ids) != len(nodes) || len(values) != len(ids)*len(ids) {
		return
	}
	for i := range nodes {
		from := slices.Index(ids, nodes[i].ID)
		if from < 0 {
			return
		}
		nodes[i].Distance = nil
		for _, to := range nodes {
			at := slices.Index(ids, to.ID)
			if at < 0 {
				return
			}
			nodes[i].Distance = append(nodes[i].Distance, int(values[from*len(ids)+at]+0.5))
		}
	}
}

// kinds adds to each CPU what the file says about its speed.
func (x *xmlReader) kinds(doc *xmlTopology) {
	for _, k := range doc.Kinds {
		for _, id := range x.mask(k.CPUs) {
			c := x.facts.at(id)
			if c == nil {
				continue
			}
			for _, i := range k.Info {
				v, err := strconv.Atoi(i.Value)
				switch {
				case err != nil:
				case i.Name == "FrequencyMaxMHz":
					c.MaxMHz = v
				case i.Name == "LinuxCapacity":
					c.Capacity = v
				}
			}
		}
	}
}
