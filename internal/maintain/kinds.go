package maintain

import "github.com/tabellion-mcp/tabellion/internal/store/sqlite"

// The kinds of findings beside those of the database, which are sqlite.FlawKinds.
const (
	KindOlderFormat   = "format-older"       // the folder is to be migrated before it can be checked
	KindUnfinished    = "restore-unfinished" // a restore into the folder was broken off
	KindAuditKey      = "audit-key"          // the key that signed the audit trail cannot be had
	KindBlobMissing   = "blob-missing"       // an artifact has no bytes
	KindBlobSize      = "blob-size"          // an artifact's bytes have another length
	KindBlobDamaged   = "blob-damaged"       // an artifact's bytes have another digest
	KindUnreadable    = "blob-unreadable"    // bytes are there, or may be, and cannot be read now
	KindLinked        = "blob-linked"        // bytes are behind a link that the server does not follow
	KindUploadBytes   = "upload-bytes"       // U3: an upload is received, and its bytes are missing or wrong
	KindBlobUnneeded  = "blob-unneeded"      // bytes that nothing needs
	KindPartLeft      = "part-left"          // bytes of a transfer that was broken off
	KindForeign       = "foreign-file"       // something in the folder of bytes that the server did not put there
	KindAuditDamaged  = string(sqlite.FlawAudit)
	kindDatabase      = string(sqlite.FlawDatabase)
	kindSchema        = string(sqlite.FlawSchema)
	kindIndex         = string(sqlite.FlawIndex)
	kindHead          = string(sqlite.FlawHead)
	kindInboundAbsent = string(sqlite.FlawInboundMissing)
	kindInboundExtra  = string(sqlite.FlawInboundExtra)
	kindUsage         = string(sqlite.FlawUsage)
)

// What to do.
const (
	doRestore = "restore the newest whole backup into another folder, and take from it what is lost"
	doRepair  = "run tabellion repair"
	doLook    = "look at the disk and at the permissions and the owner of the file, then check again; nothing is removed meanwhile"
	doUnlink  = "put the folder itself in the place of the link, with what is in it, then check again"
	doNothing = "nothing needs to be done: the server removes it when it starts, and so does tabellion repair"
)

// kinds tells of each kind whether it is damage, and what to do.
var kinds = map[string]struct {
	damage bool
	remedy string
}{
	kindDatabase:                       {true, "copy the folder, then " + doRestore},
	kindSchema:                         {true, "copy the folder, then " + doRestore + "; a trigger or a view that somebody made is run with what the server writes"},
	kindIndex:                          {true, doRepair + ", then check again"},
	string(sqlite.FlawRevision):        {true, doRestore},
	string(sqlite.FlawNumber):          {true, doRestore},
	string(sqlite.FlawTime):            {true, doRestore},
	string(sqlite.FlawSuperseded):      {true, doRestore},
	string(sqlite.FlawOrphan):          {true, doRestore},
	kindHead:                           {true, doRepair},
	string(sqlite.FlawHeadLost):        {true, doRestore},
	string(sqlite.FlawReference):       {true, doRestore},
	kindInboundAbsent:                  {true, doRepair},
	kindInboundExtra:                   {true, doRepair},
	string(sqlite.FlawArtifact):        {true, doRestore},
	string(sqlite.FlawArtifactMissing): {true, doRestore},
	string(sqlite.FlawUpload):          {true, doRestore},
	string(sqlite.FlawUploadState):     {true, doRestore},
	kindUsage:                          {true, doRepair},
	string(sqlite.FlawRecord):          {true, doRestore},
	string(sqlite.FlawRecordDamaged):   {true, doRestore},
	KindAuditDamaged:                   {true, "keep a copy of the folder as evidence, and compare it with a backup"},
	KindOlderFormat:                    {false, "run tabellion migrate, or start the server, which does the same; then check again"},
	KindUnfinished:                     {true, "run tabellion restore again: it goes on"},
	KindAuditKey:                       {true, "put audit.key back from a backup, with mode 0600"},
	KindBlobMissing:                    {true, "put the file back from a backup, or send the same bytes again as a new artifact"},
	KindBlobSize:                       {true, "put the file back from a backup, or send the same bytes again as a new artifact"},
	KindBlobDamaged:                    {true, "put the file back from a backup, or send the same bytes again as a new artifact"},
	KindUnreadable:                     {true, doLook},
	KindLinked:                         {true, doUnlink},
	KindUploadBytes:                    {true, doRepair + ": the upload waits for its bytes again"},
	KindBlobUnneeded:                   {false, doNothing},
	KindPartLeft:                       {false, doNothing},
	KindForeign:                        {false, "move it elsewhere, if it is yours: neither the server nor tabellion repair touches it"},
}

// find makes a finding.
func find(kind, where, message string) Finding {
	k := kinds[kind]
	return Finding{Kind: kind, Where: where, Message: message, Remedy: k.remedy, Damage: k.damage}
}
