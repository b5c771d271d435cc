package chain

// OnPublished has f called when all that the handler produced has been published. Where nothing watches over that, as
// middleware.Outputs does, f is never called.
func (c *Call) OnPublished(f func()) { c.published = append(c.published, f) }

// Published is called by who has seen it.
func (c *Call) Published() {
	for _, f := range c.published {
		f()
	}
	c.published = nil
}
