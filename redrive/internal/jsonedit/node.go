package jsonedit

// node is a value of a document. It is bytes of its source until something in it is asked for; then it is opened, once.
// What is not opened is written as it stood.
type node struct {
	of       *source
	from, to int
	at       int // of its container in the source

	opened     bool
	head, tail []byte            // the brackets, and the white space between them and the entries
	entries    []*entry          // of an object, removed ones too, but for the last
	named      map[string]*entry // of an object, without the removed ones
	repeated   bool              // an object has a key twice
}

// entry is a member of an object or an element of an array.
type entry struct {
	key      string
	lead     []byte // the key as it stands, with its colon
	value    *node
	behind   []byte // the comma and the white space, if another entry follows
	repeated bool   // its object has this key twice
	removed  bool
}

// parsed returns the value of a valid text.
func parsed(text []byte) *node {
	from := space(text, 0)
	to := len(text)
	for to > from && space(text, to-1) != to-1 {
		to--
	}
	return &node{of: &source{text: text}, from: from, to: to}
}

func (n *node) isObject() bool    { return n.of.text[n.from] == '{' }
func (n *node) isArray() bool     { return n.of.text[n.from] == '[' }
func (n *node) isContainer() bool { return n.isObject() || n.isArray() }
func (n *node) bytes() []byte     { return n.of.text[n.from:n.to] }

// open finds the entries of an object or array.
func (n *node) open(e *effort) error {
	if n.opened {
		return nil
	}
	if err := n.of.find(e); err != nil {
		return err
	}
	doc, inner := n.of.text, n.at+1
	if n.isObject() {
		n.named = map[string]*entry{}
	}
	i, last := space(doc, n.from+1), n.from
	n.head = doc[n.from : n.from+1]
	for i < n.to-1 {
		here := &entry{value: &node{of: n.of}}
		begin := i
		if n.isObject() {
			end := textEnd(doc, i)
			here.key = unquoted(doc[i:end])
			i = space(doc, space(doc, end)+1)
		}
		v := here.value
		here.lead, v.from = doc[begin:i], i
		read := i - last + 1
		if v.isContainer() { // its end is known, so it is not read
			v.at, v.to, inner = inner, n.of.containers[inner].to, n.of.containers[inner].next
		} else {
			v.to = scalarEnd(doc, i)
			read += v.to - i
		}
		if before := len(n.entries); before == 0 {
			n.head = doc[n.from:begin]
		} else {
			n.entries[before-1].behind = doc[last:begin]
		}
		n.enter(here)
		if err := e.spend(read); err != nil {
			return err
		}
		last, i = v.to, space(doc, v.to)
		if doc[i] != ',' {
			break
		}
		i = space(doc, i+1)
	}
	n.tail = doc[max(last, n.from+1):n.to]
	n.opened = true
	return nil
}

// enter appends an entry.
func (n *node) enter(here *entry) {
	n.entries = append(n.entries, here)
	if n.named == nil {
		return
	}
	if n.named[here.key] != nil {
		here.repeated, n.repeated = true, true
	}
	n.named[here.key] = here
}

// put appends an entry that the document did not have.
func (n *node) put(key string, value *node) {
	if len(n.entries) > 0 {
		n.entries[len(n.entries)-1].behind = []byte{','}
	}
	here := &entry{key: key, value: value}
	if n.named != nil {
		here.lead = append(quote(key), ':')
	}
	n.enter(here)
}

// drop removes a member of an object.
func (n *node) drop(here *entry) {
	here.removed = true
	delete(n.named, here.key)
	for len(n.entries) > 0 && n.entries[len(n.entries)-1].removed {
		n.entries = n.entries[:len(n.entries)-1]
	}
}

// write appends the value as it is now.
func (n *node) write(e *effort, out []byte) ([]byte, error) {
	if !n.opened {
		return append(out, n.bytes()...), e.spend(n.to - n.from)
	}
	out = append(out, n.head...)
	var behind []byte
	for _, here := range n.entries {
		if here.removed {
			continue
		}
		out = append(append(out, behind...), here.lead...)
		var err error
		if out, err = here.value.write(e, out); err != nil {
			return nil, err
		}
		if err := e.spend(len(behind) + len(here.lead)); err != nil {
			return nil, err
		}
		behind = here.behind
	}
	return append(out, n.tail...), e.spend(len(n.head) + len(n.tail))
}
