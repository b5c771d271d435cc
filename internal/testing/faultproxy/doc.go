// Package faultproxy is a TCP proxy that harms what passes, for tests of what a lost, slow or silent connection does.
//
// A Proxy stands between clients and one server. It starts without a fault. [Proxy.Cut] closes all connections and
// refuses new ones; [Proxy.HalfOpen] keeps them open and drops what either side says; [Proxy.Stall] stops reading, so
// that writes block; [Proxy.Slow] delays what the server says; [Proxy.Watch] looks at what passes and decides.
// [Proxy.Heal] ends every fault. The proxy keeps its port while it is cut, so no other process can take the port
// meanwhile.
package faultproxy
