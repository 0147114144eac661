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
					second.got()
					b.stays(o, body, nil)
					second.close()
				}
				b.mu.Lock()
				if b.held > b.most && b.order.Len() > 1 {
					t.Errorf("%d bytes are held for %d bodies", b.held, b.order.Len())
				}
				b.mu.Unlock()
			}
		})
	}
	all.Wait()
	if b.held != 0 || b.order.Len() != 0 || len(b.bodies) != 0 {
		t.Errorf("%d bytes of %d bodies are held for nobody, %d are known", b.held, b.order.Len(),
			len(b.bodies))
	}
}
