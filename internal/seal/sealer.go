package seal

import "time"

// Sealer seals and opens values. It is safe for concurrent use.
type Sealer struct{}

// Seal gives plain as a text that only Open with the same purpose and bind can read, within life.
func (s *Sealer) Seal(p Purpose, life time.Duration, bind, plain []byte) (string, error) { panic("") }

// Open gives back what was sealed, or ErrInvalid.
func (s *Sealer) Open(p Purpose, bind []byte, text string) ([]byte, error) { panic("") }
