package lab

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// at is called at each point of each request. The faults Crash, CrashBetween, SlowUnlock and
// RedisDown strike in it.
func (p *replica) at(ctx context.Context, point stage.Point) error {
	if err := p.pass(ctx); err != nil {
		return err
	}
	r, me := p.run, p.who(ctx)
	if p.number != 0 { // the shop's own replica isn't shown
		r.tell(me.replica, me.request, string(point), "")
	}
	r.note(me, point)
	if p.number == 0 || !r.strikes(me, point) {
		return p.pass(ctx)
	}
	switch r.settings.Fault {
	case Crash, CrashBetween:
		p.kill()
		r.mu.Lock()
		r.release(p.number)
		r.mu.Unlock()
		r.tell(p.number, me.request, KindCrash, "")
		return stage.ErrHalted
	case SlowUnlock:
		r.keeps(me)
		r.rename()
		r.tell(p.number, me.request, KindStall, "")
		if err := r.hold(ctx); err != nil {
			return err
		}
		r.tell(p.number, me.request, KindGoesOn, "")
		r.note(me, point) // the request begins to delete the lock now
	case RedisDown:
		r.setDown(true)
		r.later(outage, func() { r.setDown(false) })
	}
	return p.pass(ctx)
}

// told is called for points that are already over.
func (p *replica) told(ctx context.Context, point stage.Point) {
	me := p.who(ctx)
	if p.number != 0 && !p.isDead() {
		p.run.tell(me.replica, me.request, string(point), "")
	}
	p.run.note(me, point)
}

// strikes reports whether the fault strikes this request at this point. A fault strikes the first
// request that comes to its point.
func (r *run) strikes(me who, point stage.Point) bool {
	var at []stage.Point
	switch r.settings.Fault {
	case Crash, RedisDown:
		at = []stage.Point{stage.Load}
	case CrashBetween:
		at = []stage.Point{stage.Between, stage.Acquired}
	case SlowUnlock:
		at = []stage.Point{stage.Unlock}
		// The unlock of these stages has two steps.
		if r.settings.Stage == "owner" || r.settings.Stage == "watch" {
			at = []stage.Point{stage.Compared}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first != (who{}) || !slices.Contains(at, point) {
		return false
	}
	r.first = me
	return true
}

// loading runs during each load. SlowOrigin makes each load slow. The other faults in this function
// strike during the first load.
func (r *run) loading(ctx context.Context, p *replica, number int) error {
	took := r.settings.Load
	switch {
	case r.loadsOverlap():
		wait(ctx, r.overlap)
	case number == 1 && r.loadsFirst():
		r.untilAllCame(ctx)
	case number > 1 && r.settings.Fault == SlowUnlock && r.hasLock() && r.hasStruck():
		wait(ctx, r.released)
	}
	if r.settings.Fault == SlowOrigin {
		took *= 10
	}
	if number > 1 {
		return r.wait(ctx, took)
	}
	switch r.settings.Fault {
	case Rename:
		wait(ctx, r.allBegan)
		if err := r.wait(ctx, took/2); err != nil {
			return err
		}
		r.rename()
		return r.wait(ctx, took/2)
	case Failover:
		return r.loadingInAFailover(ctx, took)
	case SlowLoad:
		if err := r.wait(ctx, r.settings.LockTTL/2); err != nil {
			return err
		}
		r.rename()
		return r.wait(ctx, 2*r.settings.LockTTL+2*took)
	case Stall:
		p.freeze()
		r.tell(p.number, 0, KindStall, "")
		r.later(r.settings.LockTTL/2, func() { r.rename() })
		r.later(5*r.settings.LockTTL/2+2*took, func() {
			r.tell(p.number, 0, KindGoesOn, "")
			p.thaw()
		})
		if err := r.wait(ctx, took); err != nil {
			return err
		}
		return p.pass(ctx)
	}
	return r.wait(ctx, took)
}

// loadsOverlap reports whether the run should show simultaneous requests to a stage that has no
// lock for all replicas. In this case no load ends before all requests have looked into the cache
// and each replica loads, because a stage may look once more before it loads. Opening a connection
// may take longer than a load.
func (r *run) loadsOverlap() bool {
	return r.settings.Fault == NoFault &&
		(r.settings.Stage == "none" || r.settings.Stage == "local")
}

// loadsFirst reports whether the run should show what the other requests do while the first one
// loads: form a line, or take its lock because of a wrong clock. In this case the first load
// doesn't end before they have come.
func (r *run) loadsFirst() bool {
	switch r.settings.Fault {
	case NoFault:
		return r.needs() == stage.NeedsZooKeeper
	case Clock:
		return r.settings.Stage == "getset" || r.settings.Stage == "force"
	}
	return false
}

// untilAllCame waits until each request has come to the point at which it waits or goes on.
func (r *run) untilAllCame(ctx context.Context) {
	wait(ctx, r.sent)
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.arrived))
	r.mu.Unlock()
	for _, arrived := range all {
		wait(ctx, arrived)
	}
}

// hasStruck reports whether the fault has struck a request.
func (r *run) hasStruck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first != (who{})
}

// keeps records that a request that was about to give its lock back still has it.
func (r *run) keeps(me who) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.deleting, me)
}

// hold waits until another request has got the lock, or until it is clear that no request will get
// it.
func (r *run) hold(ctx context.Context) error {
	timer := time.NewTimer(2*r.settings.LockTTL + 2*r.settings.Load)
	defer timer.Stop()
	select {
	case <-r.another:
	case <-timer.C:
	case <-r.over:
		return stage.ErrHalted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// later calls do after d, if the run still goes on.
func (r *run) later(d time.Duration, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.faultTasks.Go(func() {
		if r.wait(context.Background(), d) == nil {
			do()
		}
	})
}

// rename changes the map at the origin, and tells the caches of the change.
func (r *run) rename() {
	r.mu.Lock()
	r.version++
	now := versionText(r.version)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := r.shop.cache.Changed(ctx, r.key)
	if err != nil {
		now += ", but the cache could not be told: " + err.Error()
	}
	r.tell(0, 0, KindRename, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announced = r.version
	if err == nil {
		r.due = r.version
	}
	closeOnce(r.renamed)
}

// firstHalf waits until the first half of the requests is over, or until a category was renamed.
func (r *run) firstHalf(ctx context.Context) {
	half := r.early()
	for r.answered() < half && !r.wasRenamed() && r.wait(ctx, 10*time.Millisecond) == nil {
	}
}

// early returns the number of requests that don't come after a rename.
func (r *run) early() (n int) {
	for i := range r.settings.Requests {
		if !r.late(i) {
			n++
		}
	}
	return n
}

// late reports whether a request comes after the rename, if the fault renames a category.
func (r *run) late(request int) bool { return r.renames() && request/len(r.replicas)%2 == 1 }

func (r *run) wasRenamed() bool {
	select {
	case <-r.renamed:
		return true
	default:
		return false
	}
}

// renameAfterAll renames a category when the first half of the requests is answered, unless the
// stage reaches the point of the fault before.
func (r *run) renameAfterAll(ctx context.Context) {
	r.firstHalf(ctx)
	if !r.wasRenamed() && ctx.Err() == nil {
		r.rename()
	}
}

// renameSilently renames a category when the first half of the requests has its answers. The second
// half comes when the cached value has expired.
func (r *run) renameSilently(ctx context.Context) {
	r.firstHalf(ctx)
	r.mu.Lock()
	r.version++
	now := versionText(r.version)
	r.mu.Unlock()
	r.tell(0, 0, KindRename, now+", and nobody says so")
	_ = r.wait(ctx, shortTTL+shortTTL/2)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = r.version
	close(r.renamed)
}

func (r *run) answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.Answered + r.report.Failed + r.report.Died + r.report.Stuck
}

func (r *run) setDown(down bool) {
	r.mu.Lock()
	r.down = down
	r.mu.Unlock()
	kind := KindUp
	if down {
		kind = KindDown
	}
	r.tell(0, 0, kind, "")
}
