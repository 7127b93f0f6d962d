package proctest

import "encoding/json"

// message is one line from a child to its parent; exactly one field is set.
type message struct {
	Ready bool            `json:"ready,omitempty"`
	Say   json.RawMessage `json:"say,omitempty"`
	Fatal string          `json:"fatal,omitempty"`
}

// String describes the message for an error.
func (m message) String() string {
	switch {
	case m.Ready:
		return "ready"
	case m.Fatal != "":
		return "fatal: " + m.Fatal
	}
	return "said " + string(m.Say)
}
