package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// drawEvery is the pause between two drawings of the progress line.
const drawEvery = 100 * time.Millisecond

// progressLine shows on one line of a terminal, drawn over and over, how far a command is. Without a terminal it shows
// nothing, so that pipes and logs hold words only. It uses no colours.
type progressLine struct {
	out   io.Writer // nil: nothing is shown
	width func() int
	now   func() time.Time

	stage string
	from  time.Time // when the stage began
	drawn time.Time
	shown int // length of the line that stands there
}

// newProgressLine shows progress on the terminal that stderr is, unless the output is for programs.
func newProgressLine(env *Env, json bool) *progressLine {
	p := &progressLine{now: time.Now}
	file, ok := env.Stderr.(*os.File)
	if json || !ok || env.getenv("TERM") == "dumb" || terminalWidth(file) == 0 {
		return p
	}
	p.out, p.width = file, func() int { return terminalWidth(file) }
	return p
}

// tell is a maintain.Progress.
func (p *progressLine) tell(stage string, done, total int64) {
	if p.out == nil {
		return
	}
	now := p.now()
	if stage != p.stage {
		p.stage, p.from, p.drawn = stage, now, time.Time{}
	}
	if now.Sub(p.drawn) < drawEvery {
		return
	}
	p.drawn = now
	p.draw(progressText(stage, done, total, now.Sub(p.from)))
}

// watch is a control.Progress.
func (p *progressLine) watch(done, total float64, note string) {
	p.tell(note, int64(done), int64(total))
}

// draw puts text in place of what stands there. The last column stays free, in which terminals begin a new line.
func (p *progressLine) draw(text string) {
	text = text[:min(len(text), max(0, p.width()-1))]
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(0, min(p.shown, p.width()-1)-len(text))))
	p.shown = len(text)
}

// end takes the line away, so that words can follow.
func (p *progressLine) end() {
	if p.out == nil || p.shown == 0 {
		return
	}
	p.draw("")
	fmt.Fprint(p.out, "\r")
	p.shown = 0
}

// inBytes tells whether a stage is counted in bytes: those that copy, hash or read. Others are counted in rows.
func inBytes(stage string) bool {
	verb, _, _ := strings.Cut(stage, " ")
	return verb == "copying" || verb == "hashing" || verb == "reading"
}

// progressText is what the line says: the stage, how much of what, how fast, and how long it will take.
func progressText(stage string, done, total int64, took time.Duration) string {
	amount := func(n int64) string { return fmt.Sprint(n) }
	if inBytes(stage) {
		amount = sizeText
	}
	text := stage
	switch {
	case total > 0:
		text += fmt.Sprintf(" %3d%%, %s of %s", min(100, done*100/total), amount(done), amount(total))
	case done > 0:
		text += " " + amount(done)
	default:
		return text + " ..."
	}
	if took < time.Second || done <= 0 {
		return text
	}
	rate := float64(done) / took.Seconds()
	text += fmt.Sprintf(", %s/s", amount(int64(rate)))
	if total > done {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s left", max(left, time.Second).Round(time.Second))
	}
	return text
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, name := float64(n)/unit, 0
	for value >= unit && name < len(sizeNames)-1 {
		value, name = value/unit, name+1
	}
	return fmt.Sprintf("%.1f %s", value, sizeNames[name])
}

// sizeNames are the units of sizeText.
var sizeNames = []string{"KiB", "MiB", "GiB", "TiB"}

// counted is a number with its noun.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "y") {
		return fmt.Sprintf("%d %sies", n, noun[:len(noun)-1])
	}
	if strings.HasSuffix(noun, "s") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
