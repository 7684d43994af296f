package web

import (
	"cmp"
	"net"
	"sync"
)

// Bound keeps Limits.Connections of l: when so many connections are open, further ones wait in the system's queue
// until one is closed. Under TLS it belongs inside of tls.NewListener.
func Bound(l net.Listener, limits Limits) net.Listener {
	return &boundListener{Listener: l, places: make(chan struct{}, cmp.Or(limits.Connections, 2048)), closed: make(chan struct{})}
}

// boundListener is what Bound returns.
type boundListener struct {
	net.Listener
	places chan struct{} // holds one for each open connection
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a free place, then for a connection.
func (l *boundListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &boundConn{Conn: c, free: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close ends the listener. Connections stay open.
func (l *boundListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundConn is a connection that holds a place.
type boundConn struct {
	net.Conn
	free func()
}

// Close closes the connection and frees its place.
func (c *boundConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// CloseWrite closes the sending side, if the connection can do that: net/http does it before it closes a connection
// whose request it did not read, so that the client gets the answer.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
