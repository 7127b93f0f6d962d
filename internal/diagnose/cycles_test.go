package diagnose

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// scene returns a snapshot with the given holds and waits. "a=x" means that participant a holds object x, and "a>x"
// that a waits for x. "a>?x" means that a waits for x, and that a release by any one holder may end the wait.
func scene(lives map[string]string, facts ...string) *Snapshot {
	s := &Snapshot{who: map[string]int{}}
	for _, n := range []string{"a", "b", "c", "d"} {
		life := lives[n]
		if life == "" {
			life = "alive"
		}
		name := fmt.Sprintf("%d.1", n[0]-'a'+1)
		s.who[name] = len(s.Participants)
		s.Participants = append(s.Participants, Participant{Name: name, Label: n, Life: life})
	}
	name := func(letter byte) string { return fmt.Sprintf("%d.1", letter-'a'+1) }
	for _, f := range facts {
		if f[1] == '=' {
			s.Holds = append(s.Holds, Hold{Object: f[2:], Owner: name(f[0])})
		}
	}
	for _, f := range facts {
		if f[1] == '>' {
			w := Wait{Owner: name(f[0]), For: "lock", Object: f[2:]}
			if f[2] == '?' {
				w.Any, w.Object = true, f[3:]
			}
			for i, h := range s.Holds {
				if h.Object == w.Object {
					w.OnHolds = append(w.OnHolds, i)
				}
			}
			s.Waits = append(s.Waits, w)
		}
	}
	return s
}

func TestDeadlocks(t *testing.T) {
	for name, c := range map[string]struct {
		scene *Snapshot
		want  []string // the participants of each deadlock
	}{
		"nobody waits":                  {scene(nil, "a=x", "b=y"), nil},
		"a chain":                       {scene(nil, "a=x", "b>x", "b=y", "c>y"), nil},
		"two":                           {scene(nil, "a=x", "b=y", "a>y", "b>x"), []string{"a b"}},
		"three":                         {scene(nil, "a=x", "b=y", "c=z", "a>y", "b>z", "c>x"), []string{"a b c"}},
		"two pairs":                     {scene(nil, "a=x", "b=y", "a>y", "b>x", "c=u", "d=v", "c>v", "d>u"), []string{"a b", "c d"}},
		"one that waits for two":        {scene(nil, "a=x", "b=y", "a>y", "b>x", "c>x"), []string{"a b"}},
		"its own":                       {scene(nil, "a=x", "a>x"), nil},
		"its own, and another's":        {scene(nil, "a=x", "a>x", "b=y", "a>y", "b>x"), []string{"a b"}},
		"one is stopped":                {scene(map[string]string{"b": "stopped"}, "a=x", "b=y", "a>y", "b>x"), nil},
		"one is dead":                   {scene(map[string]string{"b": "dead"}, "a=x", "b=y", "a>y", "b>x"), nil},
		"all readers":                   {scene(nil, "a=x", "b=x", "b=y", "c=z", "c>x", "b>z"), []string{"b c"}},
		"enough, one is free":           {scene(nil, "a=x", "b=x", "c=y", "c>?x", "a>y"), nil},
		"enough, all are stuck":         {scene(nil, "a=x", "b=x", "c=y", "c>?x", "a>y", "b>y"), []string{"a c"}},
		"enough, one is its own":        {scene(nil, "a=x", "c=x", "c=y", "c>?x", "a>y"), nil},
		"a wait that nobody holds":      {scene(nil, "a=x", "b>x", "a>e"), nil},
		"a way out through a free one":  {scene(nil, "a=x", "b=y", "a>y", "b>z", "c=z"), nil},
		"stuck behind, but in no cycle": {scene(nil, "a=x", "b=y", "a>y", "b>x", "c=z", "c>x", "d>z"), []string{"a b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, cycle := range c.scene.deadlocks() {
				text := ""
				for i, e := range cycle {
					text += " " + c.scene.Participants[c.scene.who[e.From]].Label
					require.Equal(t, e.To, cycle[(i+1)%len(cycle)].From, "a cycle")
				}
				got = append(got, text[1:])
			}
			require.ElementsMatch(t, c.want, got)
		})
	}
}

// A cycle of as many participants as an arena can have is found.
func TestDeadlockOfMany(t *testing.T) {
	const n = 2047
	s := &Snapshot{who: map[string]int{}}
	for i := range n {
		name := fmt.Sprintf("%d.1", i+1)
		s.who[name] = i
		s.Participants = append(s.Participants, Participant{Name: name, Life: "alive"})
		s.Holds = append(s.Holds, Hold{Owner: name})
		s.Waits = append(s.Waits, Wait{Owner: name, OnHolds: []int{(i + 1) % n}})
	}
	require.Len(t, s.deadlocks(), 1)
	require.Len(t, s.deadlocks()[0], n)
}
