-- The tables of ddl.sqlite.sql and json-columns.sqlite.sql in the types of PostgreSQL (models, section 19).
CREATE TABLE "users" (
  "_id" TEXT PRIMARY KEY,
  "firstName" TEXT,
  "lastName" TEXT,
  "email" TEXT,
  "kind" TEXT,
  "age" INTEGER,
  "active" BOOLEAN,
  "score" DOUBLE PRECISION,
  "bio" TEXT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "users_deleted" (
  "_id" TEXT PRIMARY KEY,
  "firstName" TEXT,
  "lastName" TEXT,
  "email" TEXT,
  "kind" TEXT,
  "age" INTEGER,
  "active" BOOLEAN,
  "score" DOUBLE PRECISION,
  "bio" TEXT,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE UNIQUE INDEX "idx_users_email" ON "users" ("email" ASC);

CREATE TABLE "profiles" (
  "_id" TEXT PRIMARY KEY,
  "userId" TEXT,
  "headline" TEXT,
  "city" TEXT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "profiles_deleted" (
  "_id" TEXT PRIMARY KEY,
  "userId" TEXT,
  "headline" TEXT,
  "city" TEXT,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "categories" (
  "_id" TEXT PRIMARY KEY,
  "name" TEXT,
  "parentId" TEXT,
  "rank" INTEGER,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "categories_deleted" (
  "_id" TEXT PRIMARY KEY,
  "name" TEXT,
  "parentId" TEXT,
  "rank" INTEGER,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "courses" (
  "_id" TEXT PRIMARY KEY,
  "title" TEXT,
  "code" TEXT,
  "status" TEXT,
  "price" DOUBLE PRECISION,
  "seats" INTEGER,
  "featured" BOOLEAN,
  "publishedAt" BIGINT,
  "teacherId" TEXT,
  "categoryId" TEXT,
  "cost" DOUBLE PRECISION,
  "tags" JSONB,
  "meta" JSONB,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "courses_deleted" (
  "_id" TEXT PRIMARY KEY,
  "title" TEXT,
  "code" TEXT,
  "status" TEXT,
  "price" DOUBLE PRECISION,
  "seats" INTEGER,
  "featured" BOOLEAN,
  "publishedAt" BIGINT,
  "teacherId" TEXT,
  "categoryId" TEXT,
  "cost" DOUBLE PRECISION,
  "tags" JSONB,
  "meta" JSONB,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE UNIQUE INDEX "idx_courses_code" ON "courses" ("code" ASC);

CREATE INDEX "idx_courses_status_price" ON "courses" ("status" ASC, "price" DESC);

CREATE TABLE "lessons" (
  "_id" TEXT PRIMARY KEY,
  "courseId" TEXT,
  "title" TEXT,
  "seq" INTEGER,
  "minutes" INTEGER,
  "free" BOOLEAN,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "lessons_deleted" (
  "_id" TEXT PRIMARY KEY,
  "courseId" TEXT,
  "title" TEXT,
  "seq" INTEGER,
  "minutes" INTEGER,
  "free" BOOLEAN,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "assets" (
  "_id" TEXT PRIMARY KEY,
  "lessonId" TEXT,
  "kind" TEXT,
  "sizeKb" INTEGER,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "assets_deleted" (
  "_id" TEXT PRIMARY KEY,
  "lessonId" TEXT,
  "kind" TEXT,
  "sizeKb" INTEGER,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "enrollments" (
  "_id" TEXT PRIMARY KEY,
  "courseId" TEXT,
  "userId" TEXT,
  "state" TEXT,
  "progress" DOUBLE PRECISION,
  "createdBy" TEXT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "enrollments_deleted" (
  "_id" TEXT PRIMARY KEY,
  "courseId" TEXT,
  "userId" TEXT,
  "state" TEXT,
  "progress" DOUBLE PRECISION,
  "createdBy" TEXT,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE UNIQUE INDEX "idx_enrollments_courseId_userId" ON "enrollments" ("courseId" ASC, "userId" ASC);

CREATE TABLE "reviews" (
  "_id" TEXT PRIMARY KEY,
  "courseId" TEXT,
  "userId" TEXT,
  "rating" INTEGER,
  "comment" TEXT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "reviews_deleted" (
  "_id" TEXT PRIMARY KEY,
  "courseId" TEXT,
  "userId" TEXT,
  "rating" INTEGER,
  "comment" TEXT,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "audit_logs" (
  "_id" TEXT PRIMARY KEY,
  "targetId" TEXT,
  "action" TEXT,
  "at" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "audit_logs_deleted" (
  "_id" TEXT PRIMARY KEY,
  "targetId" TEXT,
  "action" TEXT,
  "at" BIGINT,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);

CREATE TABLE "settings" (
  "_id" TEXT PRIMARY KEY,
  "key" TEXT,
  "value" TEXT,
  "__present" TEXT
);

CREATE TABLE "settings_deleted" (
  "_id" TEXT PRIMARY KEY,
  "key" TEXT,
  "value" TEXT,
  "deletedAt" BIGINT,
  "createdAt" BIGINT,
  "updatedAt" BIGINT,
  "__present" TEXT
);
