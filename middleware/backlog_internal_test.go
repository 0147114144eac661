package middleware

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Whatever clients do, no bytes are counted when all clients have gone. The count never exceeds the
// bound by more than one body.
func TestBacklogForgetsWhoHasGone(t *testing.T) {
	b := &backlog{most: 1 << 20}
	bodies := []string{
		strings.Repeat("a", bodyBehind+1), strings.Repeat("b", 1<<18), strings.Repeat("c", 1<<19),
		strings.Repeat("d", 1<<20),
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 50 {
				n := rand.N(len(bodies))
				body := []byte(bodies[n])
				switch (i + k) % 3 {
				case 0:
					w, res, reader := b.lends(httptest.NewRecorder(),
						&response{key: fmt.Sprint(n), body: body})
					if _, err := w.Write(res.body); err != nil || string(res.body) != bodies[n] {
						t.Errorf("body %d, %v", n, err)
					}
					reader.close()
				case 1:
					w := httptest.NewRecorder()
					if n, err := hands(b, false, w, body, w.Write); n != len(body) || err != nil {
						t.Errorf("%d bytes, %v", n, err)
					}
				default:
					o := new(owed)
					first, second := b.takes(o, httptest.NewRecorder()),
						b.takes(o, httptest.NewRecorder())
					first.close()
					b.stays(o, body, &response{key: fmt.Sprint(n), body: body})
					second.got(flowChunk)
					b.stays(o, body, nil)
					second.close()
				}
				b.mu.Lock()
				held, n := b.unread.held+b.read.held, b.unread.Len()+b.read.Len()
				if held > b.most && n > 1 {
					t.Errorf("%d bytes are held for %d bodies", held, n)
				}
				b.mu.Unlock()
			}
		})
	}
	all.Wait()
	if b.unread.held != 0 || b.read.held != 0 || b.unread.Len()+b.read.Len()+len(b.bodies) != 0 {
		t.Errorf("%d and %d bytes are held for nobody, %d bodies are known", b.unread.held,
			b.read.held, len(b.bodies))
	}
}
