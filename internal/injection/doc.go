// Package injection sends hostile strings into every name, key and value position of the model tools and of the query
// language, over database roles that could do harm, and looks at what reached the database and what came back (security
// requirements, S32 to S37, S47, S57; case M01).
package injection
