-- Columns for the fields of the types array and object. ddl.sqlite.sql is the form of release 2.0.4, which has none;
-- later releases keep JSON (models, sections 5 and 19). They are added to the test's tables beside the unchanged file.
ALTER TABLE "courses" ADD COLUMN "tags" TEXT;
ALTER TABLE "courses" ADD COLUMN "meta" TEXT;
ALTER TABLE "courses_deleted" ADD COLUMN "tags" TEXT;
ALTER TABLE "courses_deleted" ADD COLUMN "meta" TEXT;
